"""A first site file, from a picture of a cluster and what this host shows. What nobody said is `null`."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from campaign.sitecheck.comparenodes import Hardware, counts_threads, hardware
from campaign.sitecheck.hostfacts import HostFacts
from campaign.sitecheck.picture import Picture
from campaign.slurm.cluster import Node, Partition
from campaign.slurm.durations import format_duration

AMD = re.compile(r"^(?:mi\d|amd|instinct)", re.I)
UNIFIED = re.compile(r"^(?:gh\d|gb\d|mi300a)", re.I)
"""GPUs whose memory the operating system counts as the host's."""
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


@dataclass(frozen=True, slots=True)
class NodeType:
    """One kind of nodes, under the name it has in the file."""

    name: str
    kind: Hardware
    example: Node
    gpu: str | None


def site_name(cluster: str | None) -> str:
    """A cluster's name as a site name may be: `[a-z][a-z0-9_-]*`."""
    name = re.sub(r"[^a-z0-9_-]+", "-", (cluster or "").lower()).strip("-_")
    return name if re.match(r"[a-z]", name) else f"site-{name}".rstrip("-")


def site_file(picture: Picture, host: HostFacts, name: str) -> str:
    """The text of the file. Raises ValueError when the picture has no partitions or no nodes."""
    if not picture.partitions or not picture.nodes:
        reasons = [picture.failed.get(key) for key in ("partitions", "nodes")]
        raise ValueError(next((reason for reason in reasons if reason), "the cluster shows no partition with nodes"))
    return _Writer(picture, host, name).text()


class _Writer:
    """Writes one file, section after section."""

    def __init__(self, picture: Picture, host: HostFacts, name: str) -> None:
        self.picture, self.host, self.name = picture, host, name
        self.date = picture.taken[:10]
        # partitions without nodes can't run anything
        self.partitions = {key: found for key, found in (picture.partitions or {}).items() if picture.nodes_of(found)}
        if not self.partitions:
            raise ValueError("no partition of the cluster has nodes")
        self.kinds = {key: self._kinds(found) for key, found in self.partitions.items()}
        self.types = self._types()
        default = next((key for key, found in self.partitions.items() if found.default), None)
        up = (key for key, found in self.partitions.items() if found.state == "UP")
        self.default = default or next(up, next(iter(self.partitions)))

    def text(self) -> str:
        """The whole file."""
        sections = (self._head, self._scheduler, self._cluster, self._partitions, self._nodes, self._gpus,
                    self._network, self._storage, self._rest)  # fmt: skip
        return "\n".join(line for section in sections for line in section()) + "\n"

    # -- kinds of nodes

    def _kinds(self, partition: Partition) -> Counter[Hardware]:
        return Counter(hardware(node) for node in self.picture.nodes_of(partition) or [])

    def _types(self) -> dict[Hardware, NodeType]:
        examples = {hardware(node): node for node in (self.picture.nodes or {}).values()}
        types: dict[Hardware, NodeType] = {}
        taken: Counter[str] = Counter()
        for kinds in self.kinds.values():
            for kind, _ in kinds.most_common():
                if kind in types:
                    continue
                _, cores, _, _, gpus, gpu_type = kind
                gpu = _word(gpu_type or "gpu") if gpus else None
                name = f"{gpu}x{gpus}" if gpu else f"cpu{cores or ''}"
                taken[name] += 1
                unique = name if taken[name] == 1 else f"{name}-{taken[name]}"
                types[kind] = NodeType(unique, kind, examples[kind], gpu)
        return types

    def _main_type(self, partition: str) -> NodeType:
        (kind, _), *_others = self.kinds[partition].most_common(1)
        return self.types[kind]

    # -- sections

    def _head(self) -> Iterator[str]:
        node = self._main_type(self.default).example
        mine = list(dict.fromkeys(one.account for one in self.picture.associations or []))
        yield "# yaml-language-server: $schema=../docs/schema/site.json"
        yield f"# First file of {self.name}, by `campaign site discover` on {self.date}. null: nobody said it here."
        yield f"# Next: `campaign site check` on a login node, `campaign site probe {self.name}` for its compute nodes."
        yield "schema: 1"
        yield f"name: {self.name}"
        yield f"title: {_quoted(self.name)}"
        yield f"arch: {node.arch if node.arch in ('x86_64', 'aarch64') else 'null'}"
        may = ", ".join(mine) if self.picture.associations is not None else "unknown, sacctmgr didn't answer"
        yield f"account: null                           # {self.picture.user} may charge: {may or 'none'}"
        yield "project: null                           # what {project} below means"
        yield "studies: {}                             # for example  strong_scaling: {nodes: [1, 2, 4, 8]}"
        yield "transport: {kind: here, host: null, root: null}"

    def _scheduler(self) -> Iterator[str]:
        mine = self.picture.associations or []
        limits = {"array_size": self.picture.config.max_array_size}
        for key in ("submit_jobs", "running_jobs"):
            limits[key] = min((getattr(one, key) for one in mine if getattr(one, key)), default=None)
        gpus = any(kind.kind[4] for kind in self.types.values())
        yield "scheduler:"
        yield "  kind: slurm"
        yield f"  gpu_request: {'gres' if gpus else 'none'}"
        yield "  sbatch_args: {}"
        yield "  srun_args: [--cpu-bind=none, --kill-on-bad-exit=1]"
        yield "  wckey: null"
        yield f"  limits: {_flow(limits)}"
        yield "  poll_interval_s: 30"
        yield "  adopt_grace_s: 120"
        yield "  lost_after_s: 3600"

    def _cluster(self) -> Iterator[str]:
        node = self._main_type(self.default).example
        exclusive = self._exclusive()
        yield f"cluster_name: {_scalar(self.picture.config.name)}"
        yield f"accounting: {_scalar(self.picture.config.accounting is not False)}"
        yield "canary_tolerance: null"
        yield "setup: []"
        names = ", ".join(self.picture.reservations or {})
        yield "reservation: null" + (f"                       # there are: {names}" if names else "")
        yield f"visible_gpus: {'all' if exclusive else 'slurm'}"
        yield f"cpu_unit: {'thread' if counts_threads(node) else 'core'}"
        yield "compute_internet: null"
        yield f"partition_by_size: [{', '.join(_quoted(key) for key in self._by_size())}]"
        yield f"default_partition: {_quoted(self.default)}"

    def _by_size(self) -> list[str]:
        """Partitions of the default one's nodes that are up, the smallest limits first."""
        wanted = self._main_type(self.default)
        fit = [key for key, found in self.partitions.items() if found.state == "UP" and self._main_type(key) == wanted]

        def size(key: str) -> tuple[float, float, bool]:
            found = self.partitions[key]
            limits = self.picture.limits(found)
            return (limits.max_nodes, limits.max_time_s, key != self.default)

        return sorted(fit, key=size) or [self.default]

    def _max_time(self, found: Partition) -> float | None:
        """Seconds; None: not known."""
        limits = self.picture.limits(found)
        return limits.max_time_s if limits.complete else None

    def _exclusive(self) -> bool:
        """Whether jobs get whole nodes, in every partition."""
        return all(found.oversubscribe == "EXCLUSIVE" for found in self.partitions.values())

    def _partitions(self) -> Iterator[str]:
        yield "partitions:"
        for key, found in self.partitions.items():
            limits = self.picture.limits(found)
            entry: dict[str, object] = {
                "node": self._main_type(key).name,
                "nodes": found.node_count,
                "min_nodes": limits.min_nodes,
                "max_nodes": None if math.isinf(limits.max_nodes) else int(limits.max_nodes),
                "max_time": _time(self._max_time(found)),
                "default_time": _time(found.default_time_s),
                "exclusive": found.oversubscribe == "EXCLUSIVE",
            }
            if found.state != "UP":
                entry["down"] = True
            entry["qos"] = self._qos(found)
            yield f"  {_quoted(key)}: {_flow(entry)}  # [M {self.date} scontrol, sacctmgr{self._others(key)}]"

    def _others(self, key: str) -> str:
        """The nodes of a partition that aren't of its main kind."""
        kinds = self.kinds[key].most_common()[1:]
        return "".join(f"; {many} of the nodes are {self.types[kind].name}" for kind, many in kinds)

    def _qos(self, found: Partition) -> dict[str, dict[str, object]]:
        """QOS that this user may ask for in a partition, with their limits."""
        known = self.picture.qos or {}
        mine = {name for one in self.picture.associations or [] for name in one.qos}
        named: dict[str, dict[str, object]] = {}
        for name, qos in known.items():
            if name not in mine or (found.allow_qos is not None and name not in found.allow_qos):
                continue
            limits = {"min_nodes": qos.min_nodes, "max_nodes": qos.max_nodes, "max_time": _time(qos.max_time_s),
                      "submit_jobs": qos.submit_jobs, "running_jobs": qos.running_jobs}  # fmt: skip
            named[name] = {key: value for key, value in limits.items() if value is not None}
        return named

    def _nodes(self) -> Iterator[str]:
        yield "nodes:"
        for found in self.types.values():
            node = found.example
            entry = {"gpu": found.gpu, "gpus": node.gpus, "cores": node.cores,
                     "threads_per_core": node.threads_per_core or 1, "numa": None, "memory_bytes": node.memory_bytes,
                     "usable_bytes": node.memory_bytes, "disk_bytes": node.disk_bytes, "cpu_bind": None}  # fmt: skip
            memory = "both memory figures are RealMemory"
            if UNIFIED.match(found.kind[5] or ""):
                memory += ", which counts the GPUs' memory too: correct them"
            yield f"  {found.name}: {_flow(entry)}  # [M {self.date} scontrol; {memory}]"

    def _gpus(self) -> Iterator[str]:
        names = {found.gpu: found.kind[5] for found in self.types.values() if found.gpu is not None}
        if not names:
            yield "gpus: {}"
            return
        yield "gpus:"
        for name, gres in names.items():
            vendor = self.host.vendor or ("amd" if AMD.match(gres or "") else "nvidia")
            sure = "driver of this host" if self.host.vendor else "vendor guessed from the name"
            entry: dict[str, object] = {"vendor": vendor, "memory_bytes": None, "power_cap_w": None, "peak_flops": {}}
            yield f"  {name}: {_flow(entry)}  # [M {self.date} scontrol; {sure}]"

    def _network(self) -> Iterator[str]:
        interface = self.host.interface
        note = "seen on this host, not on nodes" if interface else "the ranks' interface, ib0 or hsn0 for example"
        entry = {"interface": interface, "master_addr_suffix": "", "resolve_ip": False}
        yield f"network: {_flow(entry)}   # {note}"
        yield "env: {}"

    def _storage(self) -> Iterator[str]:
        yield "filesystems:"
        for found in (*self.host.filesystems, None):
            entry: dict[str, object] = {"path": "/dev/shm", "kind": "tmpfs", "shared": False}
            if found is not None:
                entry = {"path": found.path, "kind": found.kind, "shared": True}
            entry |= {"on_compute": True, "quota_bytes": None, "quota_inodes": None, "purge_days": None}
            name = found.name if found is not None else "shm"
            yield f"  {name}: {_flow(entry)}  # [M {self.date} mounts of this host; nodes not looked at]"
        root = next((found for found in self.host.filesystems if found.writable), None)
        run_root = None if root is None else f"{root.name}:campaign"
        note = "null: the project folder" if root is None else ""
        entry = {"run_root": run_root, "node_local": "shm:campaign-{user}", "data": None}
        yield f"paths: {_flow(entry)}" + (f"   # run_root and data {note}" if note else "")

    def _rest(self) -> Iterator[str]:
        yield "software: {modules: [], python: null}"
        runtime = self.host.container_runtime
        note = "on this host's PATH" if runtime else "neither apptainer nor singularity is on this host's PATH"
        yield f"container: {{runtime: {_scalar(runtime)}, image: null, args: [], binds: []}}   # {note}"
        yield "staging: {mode: none, redirect: true, warn_metadata_ops: null}"
        yield f"billing: {{unit: null, whole_nodes: {_scalar(self._exclusive())}}}"


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else format_duration(seconds)


def _word(text: str) -> str:
    return re.sub(r"[^a-z0-9_-]+", "-", text.lower()).strip("-") or "gpu"


def _quoted(text: str) -> str:
    """A string in YAML: plain where every reader takes it for one, else in quotes (a JSON string is a YAML string)."""
    plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    return text if plain else json.dumps(text, ensure_ascii=False)


def _scalar(value: object) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return _quoted(value) if isinstance(value, str) else str(value)


def _flow(value: object) -> str:
    """A mapping on one line."""
    if not isinstance(value, dict):
        # paths and times in quotes, as people write them
        return json.dumps(value, ensure_ascii=False) if isinstance(value, str) and "/" in value else _scalar(value)
    return "{" + ", ".join(f"{_quoted(str(key))}: {_flow(item)}" for key, item in value.items()) + "}"
