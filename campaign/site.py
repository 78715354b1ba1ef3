# ruff: noqa: RUF012  pydantic copies defaults, mutable ones too
"""What a site file says: one supercomputer as a group uses it. Facts only, no code; `null` is unknown, not checked."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from campaign import machine
from campaign.errors import Problem
from campaign.fieldtypes import Line, Scalar, Token
from campaign.sitefields import (
    DEFAULT_ARRAY_SIZE,
    Billing,
    Container,
    Filesystem,
    Gpu,
    Name,
    Network,
    Node,
    Partition,
    Paths,
    Qos,
    Scheduler,
    SchedulerLimits,
    Software,
    Staging,
    StagingMode,
    Transport,
)
from campaign.validate import FileModel, json_schema, load_model, suggestion
from campaign.vendors import VENDORS

__all__ = [
    "Billing",
    "Container",
    "Filesystem",
    "Gpu",
    "Name",
    "Network",
    "Node",
    "Partition",
    "Paths",
    "Qos",
    "Scheduler",
    "SchedulerLimits",
    "Site",
    "Software",
    "Staging",
    "StagingMode",
    "Transport",
    "load_site",
    "site_schema",
]

PATH_FIELDS = ("project", "user")

# what `campaign submit` says to sbatch itself; a second opinion in `sbatch_args` would win or be refused by Slurm
OWN_SBATCH_ARGS = {
    "account": "account",
    "array": None,
    "chdir": None,
    "constraint": "constraint",
    "cpus-per-task": "resources.cpus_per_rank of the study",
    "error": None,
    "exclude": "exclude",
    "gpus-per-node": "resources.gpus_per_rank of the study",
    "gres": "resources.gpus_per_rank of the study",
    "job-name": None,
    "mail-user": "mail",
    "mem": "resources.memory of the study",
    "nodelist": "nodelist",
    "nodes": "resources.nodes of the study",
    "ntasks": "resources.ranks_per_node of the study",
    "ntasks-per-node": "resources.ranks_per_node of the study",
    "no-requeue": None,
    "open-mode": None,
    "output": None,
    "partition": "default_partition",
    "qos": "qos",
    "requeue": None,
    "reservation": "reservation",
    "signal": None,
    "switches": "switches",
    "time": "walltime of the study",
    "wckey": "scheduler.wckey",
}


class Site(FileModel):
    """One site file (contract section 3)."""

    schema_version: Literal[1] = Field(alias="schema")
    name: Name
    title: str = ""
    arch: Literal["x86_64", "aarch64"] | None = None
    account: Token | None = None
    project: Token | None = None
    studies: dict[str, dict[str, list[Scalar]]] = {}
    transport: Transport = Transport()
    scheduler: Scheduler
    cluster_name: Token | None = None
    accounting: bool = True
    canary_tolerance: Annotated[float, Field(gt=0, lt=1)] | None = None
    setup: list[Line] = []
    reservation: Token | None = None
    qos: Token | None = None
    constraint: Token | None = None
    switches: Token | None = None
    exclude: Token | None = None
    nodelist: Token | None = None
    mail: Token | None = None
    visible_gpus: Literal["all", "slurm"] = "all"
    cpu_unit: Literal["core", "thread"] = "core"
    compute_internet: bool | None = None
    """Whether compute nodes reach the internet."""
    partition_by_size: list[str] = []
    default_partition: Token
    partitions: Annotated[dict[Token, Partition], Field(min_length=1)]
    nodes: Annotated[dict[str, Node], Field(min_length=1)]
    gpus: dict[str, Gpu] = {}
    network: Network = Network()
    env: dict[str, Line] = {}
    filesystems: dict[str, Filesystem] = {}
    paths: Paths = Paths()
    software: Software = Software()
    container: Container = Container()
    staging: Staging = Staging()
    billing: Billing = Billing()

    def node_of(self, partition: str) -> Node:
        """The node type behind a partition."""
        return self.nodes[self.partitions[partition].node]

    def gpu_of(self, partition: str) -> Gpu | None:
        """The GPU type behind a partition, or None."""
        name = self.node_of(partition).gpu
        return None if name is None else self.gpus[name]

    def container_args(self, partition: str) -> list[str]:
        """Arguments of `apptainer exec` on nodes of a partition: the flag of the GPUs' vendor, then the site's own."""
        gpu = self.gpu_of(partition)
        flag = [VENDORS[gpu.vendor].container_flag] if gpu is not None and self.container.gpu_flag else []
        return [*flag, *self.container.args]

    def slurm_cpus(self, partition: str, cores: int) -> int:
        """What `--cpus-per-task` must say for this many cores: some sites count threads."""
        return cores * self.node_of(partition).threads_per_core if self.cpu_unit == "thread" else cores

    @property
    def elements_per_array(self) -> int:
        """Most elements of one job array: MaxArraySize caps the index, which begins with 0."""
        return self.scheduler.limits.array_size or DEFAULT_ARRAY_SIZE

    @property
    def local(self) -> bool:
        """True when runs need no scheduler."""
        return self.scheduler.kind == "local"

    def check(self) -> Iterator[Problem]:
        """References between keys, and keys that other keys need."""
        yield from self._check_partitions()
        yield from self._check_scheduler()
        yield from self._check_filesystems()
        yield from self._check_paths()
        if self.billing.per_node_hour is not None and self.billing.unit is None:
            yield self.problem(("billing", "per_node_hour"), "a rate needs `unit`, what it is counted in")
        for study, axes in self.studies.items():
            for axis, values in axes.items():
                if not values:
                    yield self.problem(("studies", study, axis), "an axis needs at least one value")

    def _check_partitions(self) -> Iterator[Problem]:
        yield from self._known(("default_partition",), self.default_partition, self.partitions, "partition")
        for index, name in enumerate(self.partition_by_size):
            yield from self._known(("partition_by_size", index), name, self.partitions, "partition")
        for name, partition in self.partitions.items():
            yield from self._known(("partitions", name, "node"), partition.node, self.nodes, "node type")
            low, high = partition.min_nodes, partition.max_nodes
            if low is not None and high is not None and low > high:
                yield self.problem(("partitions", name, "min_nodes"), "min_nodes is larger than max_nodes")
            for index, qos in enumerate(partition.qos_by_size):
                yield from self._known(("partitions", name, "qos_by_size", index), qos, partition.qos, "QOS")
        for name, node in self.nodes.items():
            if node.gpu is not None:
                yield from self._known(("nodes", name, "gpu"), node.gpu, self.gpus, "GPU type")
            elif node.gpus and not self.local:
                yield self.problem(("nodes", name, "gpus"), "a node with GPUs needs `gpu`, their type")
            if node.cpu_bind and len(set(node.cpu_bind)) < len(node.cpu_bind):
                yield self.problem(("nodes", name, "cpu_bind"), "two ranks would begin with the same CPU")
            if node.usable_bytes and node.memory_bytes and node.usable_bytes > node.memory_bytes:
                yield self.problem(("nodes", name, "usable_bytes"), "usable_bytes is larger than memory_bytes")

    def _check_scheduler(self) -> Iterator[Problem]:
        for name in self.scheduler.sbatch_args:
            path = ("scheduler", "sbatch_args", name)
            if name.startswith("-"):
                yield self.problem(path, "written without dashes", hint=name.lstrip("-"))
            elif name.replace("_", "-") in OWN_SBATCH_ARGS:
                key = OWN_SBATCH_ARGS[name.replace("_", "-")]
                hint = f"use the key `{key}`" if key else "remove it"
                yield self.problem(path, f"--{name.replace('_', '-')} is set by campaign itself", hint=hint)
            elif not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
                yield self.problem(path, "not the name of an sbatch option")
        if self.transport.kind == "ssh" and not self.transport.host:
            yield self.problem(("transport",), "kind ssh needs `host`", hint="host: an alias of ~/.ssh/config")
        for name in self.env:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                yield self.problem(("env", name), "not the name of an environment variable")

    def _check_filesystems(self) -> Iterator[Problem]:
        for name, filesystem in self.filesystems.items():
            path = ("filesystems", name, "path")
            yield from self._template(path, filesystem.path)
            if not filesystem.path.startswith("/"):
                yield self.problem(path, "must be an absolute path")

    def _check_paths(self) -> Iterator[Problem]:
        for key in ("run_root", "node_local", "data"):
            value: str | None = getattr(self.paths, key)
            if value is None:
                continue
            path = ("paths", key)
            yield from self._template(path, value)
            name, colon, _ = value.partition(":")
            if value.startswith("/"):
                continue
            if not colon:
                allowed = f"filesystem:folder (filesystems: {', '.join(self.filesystems)}) or an absolute path"
                yield self.problem(path, "neither `filesystem:folder` nor an absolute path", allowed=allowed)
                continue
            yield from self._known(path, name, self.filesystems, "file system")
            if name in self.filesystems:
                yield from self._check_place(path, key, name)

    def _check_place(self, path: tuple[str, ...], key: str, name: str) -> Iterator[Problem]:
        filesystem = self.filesystems[name]
        if not filesystem.on_compute:
            yield self.problem(path, f"file system `{name}` is not mounted on compute nodes")
        elif key == "node_local" and filesystem.shared:
            yield self.problem(path, f"node_local must be on node-local storage; `{name}` is shared")
        elif key != "node_local" and not filesystem.shared and not self.local:
            yield self.problem(path, f"{key} must be on shared storage; `{name}` is node-local")

    def _template(self, path: tuple[str, ...], text: str) -> Iterator[Problem]:
        allowed = ", ".join(f"{{{name}}}" for name in PATH_FIELDS)
        try:
            fields = [(name, spec, conversion) for _, name, spec, conversion in string.Formatter().parse(text)]
        except ValueError as error:
            yield self.problem(path, f"braces don't pair: {error}", allowed=allowed)
            return
        for name, spec, conversion in fields:
            if name is not None and (name not in PATH_FIELDS or spec or conversion):
                yield self.problem(path, f"unknown placeholder {{{name}}}", allowed=allowed)

    def _known(self, path: tuple[str | int, ...], name: str, known: Any, what: str) -> Iterator[Problem]:
        if name not in known:
            allowed = ", ".join(known) or f"none is described under `{path[0]}`"
            yield self.problem(path, f"there is no {what} `{name}`", allowed=allowed, hint=suggestion(name, known))


def load_site(path: Path, *, shown: str | None = None) -> Site:
    """Read and check a site file; on a local site unknown cores, GPUs and memory are those of this machine."""
    site = load_model(path, Site, shown=shown)
    if not site.local:
        return site
    nodes = {name: _this_machine(node) for name, node in site.nodes.items()}
    found = site.model_copy(update={"nodes": nodes})
    found._source = site._source
    return found


def _this_machine(node: Node) -> Node:
    """The node with cores, GPUs and memory, where they are null, as this process may use them."""
    memory = machine.memory_bytes()
    found = {
        "cores": node.cores or machine.usable_cores(),
        "gpus": node.gpus if node.gpus is not None else machine.nvidia_gpus(),
        "memory_bytes": node.memory_bytes or memory,
        "usable_bytes": node.usable_bytes or memory,
    }
    return node.model_copy(update=found)


def site_schema() -> dict[str, Any]:
    """docs/schema/site.json."""
    return json_schema(Site, "campaign site file")
