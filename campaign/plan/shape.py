"""The resources of one point on one site: partition by size, nodes, ranks, cores, GPUs, memory, batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from campaign.errors import Problem
from campaign.plan import expression
from campaign.plan.expand import Point
from campaign.site import Partition, Qos, Site
from campaign.slurm.durations import format_duration
from campaign.study import Study
from campaign.yamlfile import KeyPath

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Shape:
    """What is asked for. `partition` is the default one when none admits the run; `problems` then says why."""

    partition: str
    qos: str | None
    nodes: int
    ranks_per_node: int
    cpus_per_rank: int
    gpus_per_rank: int
    memory_bytes: int | None
    """Per node; None: nothing is asked, because the node is the job's own."""
    walltime_s: int
    problems: tuple[Problem, ...] = ()

    @property
    def world_size(self) -> int:
        """Ranks over all nodes."""
        return self.nodes * self.ranks_per_node


class Shaper:
    """Resolves the points of one study on one site; equal requests are resolved once."""

    def __init__(self, site: Site, study: Study) -> None:
        self.site = site
        self.study = study
        self._partitions: dict[tuple[Any, ...], tuple[str, tuple[Problem, ...]]] = {}

    def shape(self, point: Point, walltime_s: int) -> Shape:
        """The resources of a point for so long, with every reason why they can't be resolved."""
        problems: list[Problem] = []
        nodes = self._amount("nodes", point, problems, site_value=1) or 1
        partition, reasons = self._partition(point, nodes, walltime_s)
        problems += reasons
        qos, reasons = self._qos(partition, nodes, walltime_s)
        problems += () if problems else reasons
        node = self.site.node_of(partition)
        ranks = self._amount("ranks_per_node", point, problems, self._site_ranks(partition)) or 1
        # a core or more for every rank, even where ranks share cores: oversubscription is noted on the run
        cores = None if node.cores is None else max(1, node.cores // ranks)
        cpus = self._amount("cpus_per_rank", point, problems, cores) or 1
        gpus = self._amount("gpus_per_rank", point, problems, None if node.gpus is None else min(1, node.gpus))
        return Shape(
            partition=partition,
            qos=qos,
            nodes=nodes,
            ranks_per_node=ranks,
            cpus_per_rank=cpus,
            gpus_per_rank=gpus or 0,
            memory_bytes=self._memory(partition, ranks, cpus, gpus or 0),
            walltime_s=walltime_s,
            problems=tuple(problems),
        )

    def _site_ranks(self, partition: str) -> int | None:
        gpus = self.site.node_of(partition).gpus
        return None if gpus is None else max(1, gpus)

    def _amount(self, name: str, point: Point, problems: list[Problem], site_value: int | None) -> int | None:
        """The value of a resource: an axis of that name wins over `resources`."""
        if name in point.axes:
            return int(point.axes[name])
        value = getattr(self.study.resources, name)
        path = ("resources", name)
        if value is None or value == "site":
            if site_value is None:
                message = f"{name}: the site doesn't say it (null in the site file)"
                hint = f"resources: {{{name}: NUMBER}}"
                problems.append(self.study.problem(path, message, hint=hint))
            return site_value
        if isinstance(value, str):
            try:
                value = expression.parse(value).value(point.params)
            except ValueError as error:
                problems.append(self.study.problem(path, str(error)))
                return None
        if value < (0 if name == "gpus_per_rank" else 1):
            problems.append(self.study.problem(path, f"{name} would be {value}", allowed="1 or more"))
            return None
        return int(value)

    def _memory(self, partition: str, ranks: int, cpus: int, gpus: int) -> int | None:
        """Bytes per node. Shared nodes get what is proportional to the larger of their cores and GPUs."""
        wanted, node = self.study.resources.memory, self.site.node_of(partition)
        if isinstance(wanted, int):
            return wanted
        if node.usable_bytes is None or self.site.local:
            return None
        if wanted == "site":
            return node.usable_bytes
        if self.site.partitions[partition].exclusive:
            return None
        shares = [ranks * cpus / node.cores if node.cores else 0, ranks * gpus / node.gpus if node.gpus else 0]
        share = min(1.0, max(shares)) or 1.0
        return int(node.usable_bytes * share) // MEBIBYTE * MEBIBYTE

    def named_partition(self, point: Point) -> str | None:
        """The partition that axis or study ask for; None: by size."""
        named: str | None = point.axes.get("partition", self.study.resources.partition)
        return named

    def _partition(self, point: Point, nodes: int, walltime_s: int) -> tuple[str, tuple[Problem, ...]]:
        named = self.named_partition(point)
        key = (named, nodes, walltime_s)
        if key not in self._partitions:
            self._partitions[key] = self._named(named, point) if named else self._by_size(nodes, walltime_s)
        return self._partitions[key]

    def _named(self, name: str, point: Point) -> tuple[str, tuple[Problem, ...]]:
        if name in self.site.partitions:
            return name, ()
        path: KeyPath = self.study.axis_paths().get("partition", ("resources", "partition"))
        allowed = ", ".join(self.site.partitions)
        problem = self.study.problem(path, f"{self.site.name} has no partition `{name}`", value=name, allowed=allowed)
        return self.site.default_partition, (problem,)

    def _by_size(self, nodes: int, walltime_s: int) -> tuple[str, tuple[Problem, ...]]:
        """The first of `partition_by_size` that admits nodes and walltime and isn't down."""
        site = self.site
        if not site.partition_by_size:
            return site.default_partition, ()
        reasons = {}
        for name in site.partition_by_size:
            against = [*refusals(site.partitions[name], nodes, walltime_s).values()]
            against += self._qos_refusals(name, nodes, walltime_s)
            if not against:
                return name, ()
            reasons[name] = ", ".join(against)
        path = self.study.axis_paths().get("nodes", ("resources", "nodes"))
        shown = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        message = f"no partition of {site.name} admits {nodes} nodes for {format_duration(walltime_s)}"
        hint = self._what_fits(nodes, walltime_s)
        return site.default_partition, (self.study.problem(path, message, value=nodes, allowed=shown, hint=hint),)

    def _what_fits(self, nodes: int, walltime_s: int) -> str | None:
        """What to type instead: the longest walltime for so many nodes, else the most nodes for so long."""
        times, sizes = [], []
        for name in self.site.partition_by_size:
            partition = self.site.partitions[name]
            limits: list[Partition | Qos] = [partition, *(partition.qos[qos] for qos in partition.qos_by_size)]
            times += [
                limit.max_time for limit in limits if limit.max_time and self._admits(name, nodes, limit.max_time)
            ]
            most = [partition.nodes, *(limit.max_nodes for limit in limits)]
            sizes += [size for size in most if size and self._admits(name, size, walltime_s)]
        if times:
            return f"--set walltime={format_duration(max(times))}"
        return f"--set nodes={max(sizes)}" if sizes else None

    def _admits(self, partition: str, nodes: int, walltime_s: float) -> bool:
        against = refusals(self.site.partitions[partition], nodes, walltime_s)
        return not against and not self._qos_refusals(partition, nodes, walltime_s)

    @property
    def named_qos(self) -> str | None:
        """The QOS that study or site name; None: by size."""
        return self.study.resources.qos or self.site.qos

    def _qos_refusals(self, partition: str, nodes: int, walltime_s: float) -> list[str]:
        """Why none of a partition's `qos_by_size` admits this size; empty when one does, or the QOS is named."""
        limits = self.site.partitions[partition]
        against = {name: refusals(limits.qos[name], nodes, walltime_s) for name in limits.qos_by_size}
        if self.named_qos is not None or not all(against.values()):
            return []
        return [f"QOS {name} {', '.join(reasons.values())}" for name, reasons in against.items()]

    def _qos(self, partition: str, nodes: int, walltime_s: int) -> tuple[str | None, tuple[Problem, ...]]:
        """The QOS that site or study name, else the first of `qos_by_size` that admits nodes and walltime."""
        by_size = self.site.partitions[partition].qos_by_size
        if self.named_qos is not None or not by_size:
            return self.named_qos, ()
        limits = self.site.partitions[partition].qos
        for name in by_size:
            if not refusals(limits[name], nodes, walltime_s):
                return name, ()
        if refusals(self.site.partitions[partition], nodes, walltime_s):
            return by_size[0], ()  # the partition's own reasons are said already
        shown = "; ".join(self._qos_refusals(partition, nodes, walltime_s))
        message = f"no QOS of partition {partition} of {self.site.name} admits {nodes} nodes for "
        path = self.study.axis_paths().get("nodes", ("resources", "nodes"))
        problem = self.study.problem(path, message + format_duration(walltime_s), value=nodes, allowed=shown)
        return by_size[0], (problem,)


def refusals(limits: Partition | Qos, nodes: int, walltime_s: float) -> dict[str, str]:
    """What a partition or QOS has against this size: the limit's key and what it allows. Unknown limits admit."""
    reasons: dict[str, str] = {}
    most = {"max_nodes": limits.max_nodes}
    if isinstance(limits, Partition):
        reasons |= {"down": "down"} if limits.down else {}
        most["nodes"] = limits.nodes
    known = {key: limit for key, limit in most.items() if limit is not None}
    tightest = min(known, key=lambda key: known[key], default=None)
    if tightest is not None and nodes > known[tightest]:
        reasons[tightest] = f"at most {known[tightest]} nodes"
    if limits.min_nodes is not None and nodes < limits.min_nodes:
        reasons["min_nodes"] = f"at least {limits.min_nodes} nodes"
    if limits.max_time is not None and walltime_s > limits.max_time:
        reasons["max_time"] = f"at most {format_duration(limits.max_time)}"
    return reasons


def batches(study: Study, params: Mapping[str, Any], world_size: int) -> tuple[int | None, int | None, list[Problem]]:
    """(local, global) batch of a run, and why they can't be had.

    strong: the global batch is given and divided over the ranks; weak: the local one is given; none: what is given.
    """
    given = {name: params.get(name) for name in ("global_batch", "local_batch")}
    for name, value in given.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            return None, None, [_batch_problem(study, name, f"`{name}` must be a positive integer", value)]
    whole, part = given["global_batch"], given["local_batch"]
    if whole is not None and part is None:
        if whole % world_size == 0:
            return whole // world_size, whole, []
        if study.scaling == "none":
            return None, whole, []
        message = f"a global batch of {whole} can't be divided over {world_size} ranks"
        allowed = f"multiples of {world_size}"
        hint = f"global_batch: {max(1, whole // world_size) * world_size}"
        return None, whole, [_batch_problem(study, "global_batch", message, whole, allowed=allowed, hint=hint)]
    if part is not None and whole is None:
        return part, part * world_size, []
    return part, whole, []


def _batch_problem(study: Study, name: str, message: str, value: Any, **more: Any) -> Problem:
    path = study.axis_paths().get(name, ("params", name))
    return study.problem(path, message, value=value, **more)
