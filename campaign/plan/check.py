"""Is what a run asks for within what its site allows? Every reason at once; what nobody knows is said, not guessed."""

from __future__ import annotations

from collections.abc import Iterator

from campaign.errors import Problem
from campaign.plan import offline, places, software
from campaign.plan.ground import UNKNOWN, Findings, Ground
from campaign.plan.shape import Shape, refusals
from campaign.site import Partition, Site
from campaign.sitefields import Qos
from campaign.slurm.durations import format_duration, format_size
from campaign.study import Study
from campaign.validate import suggestion
from campaign.yamlfile import KeyPath

__all__ = ["UNKNOWN", "check", "check_site", "check_study", "unknowns"]


def check_site(ground: Ground) -> Findings:
    """What is against every run on this site, or doubtful; once per plan."""
    return Findings().add(places.check_site(ground), software.check_site(ground))


def check_study(ground: Ground, study: Study) -> Findings:
    """What is against every run of this study on this site, or doubtful; once per study, never per run."""
    return Findings().add(
        places.check_study(ground, study), software.check_study(ground, study), offline.check(ground, study)
    )


def check(site: Site, study: Study, shape: Shape) -> list[Problem]:
    """Why this shape can't run on this site; empty when nothing is against it.

    Where no partition admits the run, its node is still that of the others when all of them have the same nodes.
    """
    looked = _Check(site, study, shape)
    if not shape.problems:
        return list(looked.problems())
    alike = len({partition.node for partition in site.partitions.values()}) == 1
    return [*shape.problems, *(looked.node_problems() if alike else ())]


class _Check:
    """One shape against one site. Messages name the study's key, and the site's line that forbids it."""

    def __init__(self, site: Site, study: Study, shape: Shape) -> None:
        self.site, self.study, self.shape = site, study, shape
        self.partition = site.partitions[shape.partition]
        self.node = site.node_of(shape.partition)

    def problems(self) -> Iterator[Problem]:
        yield from self._partition()
        yield from self._qos()
        yield from self.node_problems()

    def node_problems(self) -> Iterator[Problem]:
        """What one node has too little of."""
        yield from self._gpus()
        if not self.site.local:
            # without a scheduler nobody refuses more ranks than cores: the run is marked as oversubscribed
            yield from self._cores()
            yield from self._memory()

    def _partition(self) -> Iterator[Problem]:
        name, limits = self.shape.partition, self.partition
        where = f"partition {name} of {self.site.name}"
        others = [other for other, partition in self.site.partitions.items() if not self._against(partition)]
        hint = f"--set partition={others[0]}" if others else None
        for key, reason in self._against(limits).items():
            path: KeyPath = ("partitions", name, key)
            if key == "down":
                yield self._problem("partition", f"{where} is down", name, path, reason, hint)
            else:
                yield self._size(where, limits, path, reason, hint)

    def _against(self, limits: Partition | Qos) -> dict[str, str]:
        """What a partition or QOS has against this size."""
        return refusals(limits, self.shape.nodes, self.shape.walltime_s)

    def _size(self, where: str, limits: Partition | Qos, path: KeyPath, reason: str, hint: str | None) -> Problem:
        """Too many or too few nodes, or too much time; `path` ends in the key of `limits` that says so."""
        bound = getattr(limits, str(path[-1]))
        if path[-1] == "max_time":
            clock = format_duration(self.shape.walltime_s)
            message = f"a walltime of {clock} is too long for {where}"
            hint = hint or f"--set walltime={format_duration(bound)}"
            return self._problem("walltime", message, clock, path, reason, hint)
        nodes = self.shape.nodes
        message = f"{nodes} nodes don't fit {where}"
        return self._problem("nodes", message, nodes, path, reason, hint or f"--set nodes={bound}")

    def _qos(self) -> Iterator[Problem]:
        name, known = self.shape.qos, self.partition.qos
        if name is None or not known:
            return
        start: KeyPath = ("partitions", self.shape.partition, "qos")
        others = [other for other, limits in known.items() if not self._against(limits)]
        hint = f"--set qos={others[0]}" if others else None
        if name not in known:
            message = f"partition {self.shape.partition} of {self.site.name} has no QOS `{name}`"
            yield self._problem("qos", message, name, start, ", ".join(known), suggestion(name, known) or hint)
            return
        for key, reason in self._against(known[name]).items():
            yield self._size(f"QOS {name} of {self.site.name}", known[name], (*start, name, key), reason, hint)

    def _gpus(self) -> Iterator[Problem]:
        yield from self._devices("gpus_per_rank", "GPUs", "gpus", self.node.gpus)

    def _cores(self) -> Iterator[Problem]:
        yield from self._devices("cpus_per_rank", "cores", "cores", self.node.cores)

    def _devices(self, per_rank: str, what: str, key: str, there: int | None) -> Iterator[Problem]:
        """Ranks of a node times what each of them wants, against what a node has."""
        each, ranks, node = getattr(self.shape, per_rank), self.shape.ranks_per_node, self.partition.node
        if there is None or each * ranks <= there:
            return
        message = f"{ranks} ranks x {each} {what} are {each * ranks} {what} on a node, a {node} node has {there}"
        name = per_rank if each > 1 else "ranks_per_node"
        fits = there // ranks
        hint = f"--set {per_rank}={fits}" if fits else f"--set ranks_per_node={max(1, there // each)}"
        yield self._problem(name, message, each * ranks, ("nodes", node, key), f"at most {there} {what} a node", hint)

    def _memory(self) -> Iterator[Problem]:
        # where nobody knows what jobs may ask for, it is at most what is there
        key = "usable_bytes" if self.node.usable_bytes is not None else "memory_bytes"
        wanted, most = self.shape.memory_bytes, getattr(self.node, key)
        if wanted is not None and most is not None and wanted > most:
            message = f"{format_size(wanted)} of memory a node, a job on {self.partition.node} may ask for less"
            fits = f"{most // (1 << 30)}G"
            limit = ("nodes", self.partition.node, key)
            yield self._problem(
                "memory", message, format_size(wanted), limit, f"at most {fits}", f"--set memory={fits}"
            )

    def _problem(
        self, name: str, message: str, value: object, limit: KeyPath, allowed: str, hint: str | None
    ) -> Problem:
        default: KeyPath = ("walltime",) if name == "walltime" else ("resources", name)
        file, line = self.site.source.place(limit)
        place = f"{file}:{line}" if line else file
        path = self.study.axis_paths().get(name, default)
        return self.study.problem(path, message, value=value, allowed=f"{allowed} ({place})", hint=hint)


def unknowns(site: Site, shape: Shape) -> Iterator[Problem]:
    """The limits that this shape would have been held against, had anyone known them."""
    if site.local:
        return
    name, partition = shape.partition, site.partitions[shape.partition]
    for key, value in (("max_nodes", partition.max_nodes), ("max_time", partition.max_time)):
        if value is None and not (key == "max_nodes" and partition.nodes is not None):
            yield site.problem(("partitions", name, key), f"{key} of partition {name} is {UNKNOWN}")
    node = site.node_of(name)
    for key in ("cores", "gpus"):
        if getattr(node, key) is None:
            yield site.problem(("nodes", partition.node, key), f"{key} of node type {partition.node} is {UNKNOWN}")
    if shape.memory_bytes is not None and node.usable_bytes is None:
        message = f"usable_bytes of node type {partition.node} is {UNKNOWN}"
        yield site.problem(("nodes", partition.node, "usable_bytes"), message)
    if shape.qos is not None and not partition.qos:
        yield site.problem(("partitions", name, "qos"), f"the limits of QOS {shape.qos} are {UNKNOWN}")
