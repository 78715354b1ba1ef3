"""What a probe's facts mean beside the site file: one finding per fact. Pure.

A fact that no key of the file holds has an empty key; it is `wrong` only when campaign rests on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from campaign.doctor.storage import kind_of
from campaign.site import Site
from campaign.sitecheck.findings import Finding, Findings, Verdict
from campaign.sitecheck.host import NODE_KINDS
from campaign.vendors import VENDORS
from campaign.yamlfile import KeyPath

GPU_DEVICE = re.compile(r"/dev/(?:nvidia|dri/renderD)\d+")
KILL_WAIT_SLACK_S = 3.0

Facts = dict[str, Any]
Judged = tuple[Verdict, str, Any, str | None]
"""(verdict, message, found, line to type)."""


def verdicts(site: Site, facts: Facts, partition: str, kill_wait_s: int | None) -> list[Finding]:
    """All findings of one probe. `kill_wait_s`: KillWait of the cluster's configuration, None: not known."""
    judged = _Verdicts(site, facts, partition)
    judged.nodes_came()
    judged.filesystems()
    judged.places()
    judged.cpus()
    judged.gpus()
    judged.network()
    judged.software()
    if not site.local:
        judged.broadcast()
        judged.signals(kill_wait_s)
    return judged.findings.all


class _Verdicts:
    """One probe's facts beside one site file."""

    def __init__(self, site: Site, facts: Facts, partition: str) -> None:
        self.site, self.facts, self.partition = site, facts, partition
        self.findings = Findings(site)
        self.nodes: dict[str, Facts] = facts["nodes"]
        self.node_path: KeyPath = ("nodes", site.partitions[partition].node)

    def name(self, task: str) -> str:
        """A node's own name."""
        host = self.nodes[task].get("host", {})
        own = host.get("node") or host.get("hostname") or self.facts["names"].get(task)
        return str(own or f"node {task}")

    def each(self, check: str) -> dict[str, Any]:
        """What each node found in one check, by its name; a check that failed isn't there, and is told as unknown."""
        found = {}
        for task, checks in self.nodes.items():
            if not checks:
                continue  # told once
            value = checks.get(check, {"error": "no answer: the step ended before"})
            if isinstance(value, dict) and set(value) == {"error"}:
                self.unknown((), f"{check} on {self.name(task)}: {value['error']}")
            else:
                found[self.name(task)] = value
        return found

    @property
    def source(self) -> str:
        return ", ".join(self.name(task) for task in self.nodes) or "nodes"

    def say(
        self, verdict: Verdict, path: KeyPath, message: str, *, found: Any = None, write: str | None = None
    ) -> None:
        self.findings.add(verdict, path, message, source=self.source, found=found, write=write)

    def unknown(self, path: KeyPath, message: str) -> None:
        self.findings.unknown(path, message, source=self.source)

    def agree(self, path: KeyPath, values: dict[str, Any], judge: Callable[[Any], Judged]) -> None:
        """One finding for nodes that say the same, one each for those that differ.

        `judge` is asked for each node's value.
        """
        groups: dict[str, tuple[Any, list[str]]] = {}
        for name, value in values.items():
            groups.setdefault(repr(judge(value)), (value, []))[1].append(name)
        for value, names in groups.values():
            verdict, message, found, write = judge(value)
            where = "" if len(groups) == 1 else f" on {', '.join(names)}"
            self.say(verdict, path, message + where, found=found, write=write)

    # -- nodes and storage

    def nodes_came(self) -> None:
        for task, checks in self.nodes.items():
            if not checks:
                said = self.facts["errors"].get(task)
                message = f"{self.name(task)} left nothing in the run root: it doesn't see it, or Python didn't start"
                self.say("wrong", ("paths", "run_root"), message + (f": {said}" if said else ""), found=False)
            elif "end" not in checks:
                self.unknown((), f"{self.name(task)}: the checks were cut short")
        arch = {name: value["arch"] for name, value in self.each("host").items()}
        found = set(arch.values())
        if len(found) == 1:
            self.findings.compare(("arch",), self.site.arch, found.pop(), "the architecture of the nodes",
                                  source=self.source)  # fmt: skip

    def filesystems(self) -> None:
        by_node = self.each("filesystems")
        for name, said in self.site.filesystems.items():
            seen = {node: found[name] for node, found in by_node.items() if name in found}
            where: tuple[str, ...] = ("filesystems", name)
            if not seen:
                self.unknown(where, f"{said.path}: not looked at, the project isn't given")
                continue

            def there(found: Facts, said: Any = said) -> Judged:
                ok = found["there"] == said.on_compute
                word = "is there" if found["there"] else "isn't there"
                write = None if ok else f"on_compute: {str(found['there']).lower()}"
                return ("right" if ok else "wrong", f"{found['path']} {word}", found["there"], write)

            self.agree((*where, "on_compute"), seen, there)
            mounted = {node: found for node, found in seen.items() if found["there"]}

            def kind(found: Facts, said: Any = said) -> Judged:
                real = kind_of(found["kind"])
                ok = real == said.kind
                message = f"{found['path']} is {real}" + ("" if ok else f", the file says {said.kind}")
                return ("right" if ok else "wrong", message, real, None if ok else f"kind: {real}")

            self.agree((*where, "kind"), mounted, kind)
            if said.shared and any(kind_of(found["kind"]) in NODE_KINDS for found in mounted.values()):
                self.say("wrong", (*where, "shared"), f"{said.path} is each node's own", found=False,
                         write="shared: false")  # fmt: skip

    def places(self) -> None:
        for name, found in self.each("shm").items():
            message = f"/dev/shm of {name}: {_size(found['size_bytes'])}, {kind_of(found['kind'])}"
            self.say("right" if found["writable"] else "note", (), message, found=found["size_bytes"])

        def local(found: Facts) -> Judged:
            shown = f"{found['path']} lies on {found['mount']}: {kind_of(found['kind'])}, {_size(found['size_bytes'])}"
            return ("right", f"{shown}, can be written", found["kind"], None)

        self.agree(("paths", "node_local"), self.each("node_local"), local)
        if len(self.nodes) > 1:
            for name, found in self.each("run_root").items():
                if found["shared"]:
                    message = f"{name} sees what the others write to the run root, after {found['seconds']:.2f} s"
                    self.say("right", ("paths", "run_root"), message, found=True)
                else:
                    message = f"{name} doesn't see what {', '.join(found['missing'])} wrote to the run root"
                    self.say("wrong", ("paths", "run_root"), message, found=False,
                             write="run_root: a folder on shared storage")  # fmt: skip

    # -- hardware

    def cpus(self) -> None:
        cores = self.site.nodes[str(self.node_path[1])].cores

        def count(found: Facts) -> Judged:
            shown = f"a node's step may use {found['cores']} cores ({found['allowed']} hardware threads)"
            if cores is None:
                return ("missing", shown, found["cores"], f"cores: {found['cores']}")
            ok = found["cores"] == cores
            message = shown if ok else f"{shown}, the file says {cores}"
            return ("right" if ok else "wrong", message, found["cores"], None if ok else f"cores: {found['cores']}")

        self.agree((*self.node_path, "cores"), self.each("cpus"), count)
        ranks = [checks["rank"] for checks in self.facts["ranks"].values() if "cpus" in checks.get("rank", {})]
        if ranks:
            counts = sorted({(rank["cpus"]["cores"], rank["cpus"]["allowed"]) for rank in ranks})
            shown = " or ".join(f"{many} cores ({threads} threads)" for many, threads in counts)
            self.say("note", (), f"with srun_args of the file, each of {len(ranks)} ranks may use {shown}")

    def gpus(self) -> None:
        site, node = self.site, self.site.nodes[str(self.node_path[1])]
        gpu = site.gpu_of(self.partition)
        if gpu is None or not node.gpus:
            return
        variable = VENDORS[gpu.vendor].visible_devices

        def devices(found: Facts) -> Judged:
            many = sum(bool(GPU_DEVICE.fullmatch(path)) for path in found["devices"])
            ok = many == node.gpus
            message = f"a node has {many} devices of {gpu.vendor}" + ("" if ok else f", the file says {node.gpus}")
            return ("right" if ok else "wrong", message, many, None if ok else f"gpus: {many}")

        self.agree((*self.node_path, "gpus"), self.each("gpus"), devices)
        for what, values in (("a node's step", self._visible(self.nodes, "host", variable)),
                             ("a rank", self._visible(self.facts["ranks"], "rank", variable))):  # fmt: skip
            if values:
                shown = " | ".join("not set" if value is None else value for value in values)
                self.say("note", ("visible_gpus",), f"Slurm gives {what} {variable}: {shown}", found=shown)

    @staticmethod
    def _visible(tasks: dict[str, Facts], check: str, variable: str) -> list[str | None]:
        values = [checks[check]["variables"].get(variable) for checks in tasks.values()
                  if "variables" in checks.get(check, {})]  # fmt: skip
        return list(dict.fromkeys(values))

    # -- network

    def network(self) -> None:
        said = self.site.network.interface
        if said is not None:

            def address(found: Facts) -> Judged:
                there = {name: own for name, own in found.items() if own}
                if said in there:
                    return ("right", f"{said} has an address", said, None)
                others = ", ".join(name for name in there if name != "lo") or "none"
                return ("wrong", f"there is no {said} with an address; there are {others}", others,
                        f"interface: {others.partition(', ')[0]}")  # fmt: skip

            self.agree(("network", "interface"), self.each("network_interfaces"), address)
        elif not self.site.local:
            for name, found in self.each("network_interfaces").items():
                others = [key for key, own in found.items() if own and key != "lo"]
                if others:
                    message = f"{name} has {', '.join(others)}"
                    self.say("missing", ("network", "interface"), message, found=", ".join(others),
                             write=f"interface: {others[0]}")  # fmt: skip
        if len(self.nodes) > 1:
            self.rendezvous()

    def rendezvous(self) -> None:
        path = ("network", "master_addr_suffix")
        calls = [found for found in self.each("pair").values() if found.get("role") == "client"]
        if not calls:
            self.unknown(path, "no second node called the first one")
            return
        call = calls[0]
        suffixed, plain = call["names"][0], call["names"][-1]
        if suffixed["reached"]:
            over = f"{suffixed['name']} ({suffixed['address']}) is reached, over {suffixed['interface']}"
            said = self.site.network.interface
            elsewhere = said is not None and suffixed["interface"] != said
            self.say("note" if elsewhere else "right", path, over, found=suffixed["name"])
        elif plain["reached"]:
            self.say("wrong", path, f"{suffixed['name']} isn't reached ({suffixed['error']}); {plain['name']} is",
                     found="", write='master_addr_suffix: ""')  # fmt: skip
        else:
            self.say("wrong", path, f"neither name is reached: {suffixed['name']} ({suffixed['error']})")
        if plain is not suffixed and not plain["reached"]:
            self.say("note", path, f"the plain name {plain['name']} isn't reached ({plain['error']})")
        for size in call["sizes"]:
            shown = f"latency {size['latency_s'] * 1e6:.0f} us, {size['bytes_per_s'] / 1e9:.3g} GB/s"
            message = f"{size['bytes']} bytes to and fro, {call['way']}: {shown} (median of {size['round_trips']})"
            self.say("note", (), message, found=size["bytes_per_s"])

    # -- software

    def software(self) -> None:
        wanted = self.site.container

        def runtime(found: Facts) -> Judged:
            name = found["runtime"]
            if name is None and wanted.runtime is None:
                return ("unknown", "no container runtime is there", None, None)
            if name is None:
                return ("wrong", f"{wanted.runtime} isn't there", None, "runtime: null")
            if wanted.runtime is None:
                return ("missing", f"{name} is there: {found['version']}", found["version"], f"runtime: {name}")
            if found["starts"] is False:
                return ("wrong", f"{name} doesn't start {wanted.image}: {found['version']}", False, None)
            started = " and starts the image" if found["starts"] else ""
            return ("right", f"{name} is there: {found['version']}{started}", found["version"], None)

        self.agree(("container", "runtime"), self.each("container"), runtime)

        def trace(found: Facts) -> Judged:
            strace = {True: "strace works", False: "strace fails", None: "strace isn't installed"}
            shown = f"tracing is {'allowed' if found['ptrace'] else 'refused'}; {strace[found['strace_works']]}"
            return ("note", shown, found["ptrace"], None)

        self.agree((), self.each("trace"), trace)
        self.agree(("compute_internet",), {name: found for name, found in self.each("internet").items() if found},
                   self._internet)  # fmt: skip

    def _internet(self, found: Facts) -> Judged:
        reached, said = found["reached"], self.site.compute_internet
        word = str(reached).lower()
        shown = f"{found['host']} is {'reached' if reached else 'not reached: ' + str(found['error'])}"
        if said is None:
            return ("missing", shown, reached, f"compute_internet: {word}")
        return ("right" if said == reached else "wrong", shown, reached,
                None if said == reached else f"compute_internet: {word}")  # fmt: skip

    # -- what the job saw

    def broadcast(self) -> None:
        batch = self.facts["batch"] or {}
        sent = batch.get("sbcast") or {}
        path = ("staging", "mode")
        needed = self.site.staging.mode == "staged-image"
        right = self.facts["broadcast_sha256"]
        arrived = [found.get("sha256") == right for found in self.each("sbcast").values()]
        if sent.get("exit") == 0 and arrived and all(arrived):
            self.say("right", path, f"sbcast brought a file to {len(arrived)} nodes, unharmed", found=True)
        else:
            said = sent.get("said") or f"{sum(arrived)} of {len(arrived)} nodes have it"
            self.say("wrong" if needed else "note", path, f"sbcast didn't bring the file to all nodes: {said}",
                     found=False)  # fmt: skip

    def signals(self, kill_wait_s: int | None) -> None:
        batch = self.facts["batch"] or {}
        warned = (batch.get("signals") or {}).get("usr2")
        if warned:
            message = f"the warning signal reached the batch process {warned - batch['started']:.0f} s after its start"
            self.say("right", (), message, found=True)
        elif batch.get("state") in ("checked", "ending"):
            self.say("wrong", (), "the warning signal (B:USR2) never reached the batch process", found=False)
        else:
            self.unknown((), "the warning signal: the job ended before")
        ends = self.facts["ends"]
        own = ends.get("batch", {}).get("sigterm")
        if own is None:
            self.unknown((), "SIGTERM at the end: the job wasn't cancelled, or nothing was told")
            return
        steps = {task: end["sigterm"] for task, end in ends.items() if task != "batch"}
        told = [time - batch["cancelled"] for time in (own, *steps.values()) if time is not None]
        expected = 1 + sum(bool(checks) for checks in self.nodes.values())
        verdict: Verdict = "right" if len(told) == expected else "wrong"
        message = f"SIGTERM reached batch process and steps ({len(told)} of {expected} processes)"
        self.say(verdict, (), f"{message} {max(told):.1f} s after scancel", found=len(told))
        alive = ends["batch"]["alive"]
        if alive is None:
            return
        lasted = alive - own
        shown = f"a process that stays after SIGTERM is killed after {lasted:.0f} s"
        if kill_wait_s is None:
            self.say("note", (), f"{shown}; KillWait isn't known", found=lasted)
        elif lasted < kill_wait_s - KILL_WAIT_SLACK_S:
            self.say("wrong", (), f"{shown}, KillWait says {kill_wait_s} s", found=lasted)
        else:
            self.say("right", (), f"{shown} (KillWait {kill_wait_s} s)", found=lasted)


def _size(number: float) -> str:
    return f"{number / 2**30:.3g} GiB"
