"""Is what a run asks for within what its site allows? Every reason at once; what nobody knows is said, not guessed."""

from __future__ import annotations

from collections.abc import Iterator

from campaign.errors import Problem
from campaign.plan import offline, places, software
from campaign.plan.ground import UNKNOWN, Findings, Ground
from campaign.plan.shape import Shape, refusals
from campaign.site import Site
from campaign.slurm.durations import format_duration, format_size
from campaign.study import Study
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
        name, nodes = self.shape.partition, self.shape.nodes
        where = f"partition {name} of {self.site.name}"
        for key, reason in refusals(self.partition, nodes, self.shape.walltime_s).items():
            limit: KeyPath = ("partitions", name, key)
            if key == "down":
                yield self._problem("partition", f"{where} is down", name, limit, reason)
            elif key == "max_time":
                yield self._too_long(where, limit, reason)
            else:
                yield self._problem("nodes", f"{nodes} nodes don't fit {where}", nodes, limit, reason)

    def _too_long(self, where: str, limit: KeyPath, allowed: str) -> Problem:
        clock = format_duration(self.shape.walltime_s)
        return self._problem("walltime", f"a walltime of {clock} is too long for {where}", clock, limit, allowed)

    def _qos(self) -> Iterator[Problem]:
        name = self.shape.qos
        if name is None or not self.partition.qos:
            return
        start: KeyPath = ("partitions", self.shape.partition, "qos")
        qos = self.partition.qos.get(name)
        if qos is None:
            message = f"partition {self.shape.partition} of {self.site.name} has no QOS `{name}`"
            yield self._problem("qos", message, name, start, ", ".join(self.partition.qos))
            return
        where, nodes = f"QOS {name} of {self.site.name}", self.shape.nodes
        if qos.max_nodes is not None and nodes > qos.max_nodes:
            allowed = f"at most {qos.max_nodes} nodes"
            yield self._problem(
                "nodes", f"{nodes} nodes don't fit {where}", nodes, (*start, name, "max_nodes"), allowed
            )
        if qos.min_nodes is not None and nodes < qos.min_nodes:
            allowed = f"at least {qos.min_nodes} nodes"
            yield self._problem(
                "nodes", f"{nodes} nodes don't fit {where}", nodes, (*start, name, "min_nodes"), allowed
            )
        if qos.max_time is not None and self.shape.walltime_s > qos.max_time:
            yield self._too_long(where, (*start, name, "max_time"), f"at most {format_duration(qos.max_time)}")

    def _gpus(self) -> Iterator[Problem]:
        wanted = self.shape.gpus_per_rank * self.shape.ranks_per_node
        if self.node.gpus is not None and wanted > self.node.gpus:
            message = (
                f"{self.shape.ranks_per_node} ranks x {self.shape.gpus_per_rank} GPUs are {wanted} GPUs on a node, "
                f"a {self.partition.node} node has {self.node.gpus}"
            )
            name = "gpus_per_rank" if self.shape.gpus_per_rank > 1 else "ranks_per_node"
            allowed = f"at most {self.node.gpus} GPUs a node"
            yield self._problem(name, message, wanted, ("nodes", self.partition.node, "gpus"), allowed)

    def _cores(self) -> Iterator[Problem]:
        wanted = self.shape.cpus_per_rank * self.shape.ranks_per_node
        if self.node.cores is not None and wanted > self.node.cores:
            message = (
                f"{self.shape.ranks_per_node} ranks x {self.shape.cpus_per_rank} cores are {wanted} cores on a node, "
                f"a {self.partition.node} node has {self.node.cores}"
            )
            name = "cpus_per_rank" if self.shape.cpus_per_rank > 1 else "ranks_per_node"
            allowed = f"at most {self.node.cores} cores a node"
            yield self._problem(name, message, wanted, ("nodes", self.partition.node, "cores"), allowed)

    def _memory(self) -> Iterator[Problem]:
        # where nobody knows what jobs may ask for, it is at most what is there
        key = "usable_bytes" if self.node.usable_bytes is not None else "memory_bytes"
        wanted, most = self.shape.memory_bytes, getattr(self.node, key)
        if wanted is not None and most is not None and wanted > most:
            message = f"{format_size(wanted)} of memory a node, a job on {self.partition.node} may ask for less"
            allowed = f"at most {most // (1 << 30)}G"
            limit = ("nodes", self.partition.node, key)
            yield self._problem("memory", message, format_size(wanted), limit, allowed)

    def _problem(self, name: str, message: str, value: object, limit: KeyPath, allowed: str) -> Problem:
        default: KeyPath = ("walltime",) if name == "walltime" else ("resources", name)
        file, line = self.site.source.place(limit)
        place = f"{file}:{line}" if line else file
        path = self.study.axis_paths().get(name, default)
        return self.study.problem(path, message, value=value, allowed=f"{allowed} ({place})")


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
