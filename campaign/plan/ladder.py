"""`pack: serial`: the runs of a study that share one allocation, one after another on the same nodes. Pure.

Runs keep their order (repeats interleaved: ABCABC), so a machine's drift hits all sizes alike. An allocation has the
nodes of its largest run. A ladder that is longer than the partition's time limit is cut, between repeats where it can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from campaign.plan.shape import Shape, qos_refusals, refusals
from campaign.site import Partition, Site

START_S = 60
"""Of every allocation, for the head and the first claims: walltimes are the runs' own."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One run of a ladder, as far as packing needs it."""

    shape: Shape
    repeat: int
    named: str | None
    """The partition that study or axis ask for; None: by size."""


@dataclass(frozen=True, slots=True)
class Ladder:
    """Which runs share an allocation: `members` are indices into the rungs that were packed."""

    members: tuple[int, ...]
    nodes: int
    partition: str
    walltime_s: int
    refused: str | None = None
    """Why no partition takes it; None when one does."""


def ladders(site: Site, rungs: Sequence[Rung]) -> list[Ladder]:
    """The rungs, in order, in as few allocations as partitions and time limits allow."""
    found: list[Ladder] = []
    for (qos, named), group in _groups(rungs).items():
        nodes = max(rungs[index].shape.nodes for index in group)
        limit = _longest(site, nodes, named, qos)
        found += [_ladder(site, rungs, part, nodes, named, qos) for part in _cut(rungs, group, limit)]
    return found


def _groups(rungs: Sequence[Rung]) -> dict[tuple[str | None, str | None], list[int]]:
    """Indices of rungs that may share an allocation at all: of one QOS, and of one partition where they name it."""
    groups: dict[tuple[str | None, str | None], list[int]] = {}
    for index, rung in enumerate(rungs):
        groups.setdefault((rung.shape.qos, rung.named), []).append(index)
    return groups


def _candidates(site: Site, named: str | None) -> list[tuple[str, Partition]]:
    names = [named] if named else site.partition_by_size or [site.default_partition]
    return [(name, site.partitions[name]) for name in names if name in site.partitions]


def _against(partition: Partition, qos: str | None, nodes: int, walltime_s: float) -> list[str]:
    """What a partition, and the QOS that its jobs ask for, have against this size."""
    own = partition.qos.get(qos) if qos is not None else None
    reasons = {} if own is None else qos_refusals(own, nodes, walltime_s)
    return [*refusals(partition, nodes, walltime_s).values(), *(f"QOS {qos} {reason}" for reason in reasons.values())]


def _time_limit(partition: Partition, qos: str | None) -> float | None:
    own = partition.qos[qos].max_time if qos is not None and qos in partition.qos else None
    return min((limit for limit in (partition.max_time, own) if limit is not None), default=None)


def _longest(site: Site, nodes: int, named: str | None, qos: str | None) -> float | None:
    """The most seconds that a partition gives these nodes; None: no limit is known, or none takes them."""
    candidates = [partition for _, partition in _candidates(site, named)]
    limits = [_time_limit(partition, qos) for partition in candidates if not _against(partition, qos, nodes, 0)]
    return None if not limits or None in limits else max(limit for limit in limits if limit is not None)


def _cut(rungs: Sequence[Rung], group: Sequence[int], limit: float | None) -> list[list[int]]:
    """The group in parts that fit the limit: whole repeats where one fits, else whatever fits in order."""
    if limit is None:
        return [list(group)]
    repeats: list[list[int]] = []
    for index in group:
        if repeats and rungs[repeats[-1][-1]].repeat == rungs[index].repeat:
            repeats[-1].append(index)
        else:
            repeats.append([index])
    whole = max(_seconds(rungs, repeat) for repeat in repeats) + START_S <= limit
    parts: list[list[int]] = []
    for piece in repeats if whole else [[index] for index in group]:
        if parts and _seconds(rungs, [*parts[-1], *piece]) + START_S <= limit:
            parts[-1] += piece
        else:
            parts.append(list(piece))
    return parts


def _seconds(rungs: Sequence[Rung], indices: Sequence[int]) -> int:
    return sum(rungs[index].shape.walltime_s for index in indices)


def _ladder(
    site: Site, rungs: Sequence[Rung], members: Sequence[int], nodes: int, named: str | None, qos: str | None
) -> Ladder:
    walltime_s = _seconds(rungs, members) + START_S
    reasons = {}
    candidates = _candidates(site, named)
    for name, partition in candidates:
        against = _against(partition, qos, nodes, walltime_s)
        if not against:
            return Ladder(tuple(members), nodes, name, walltime_s)
        reasons[name] = ", ".join(against)
    why = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    first = candidates[0][0] if candidates else site.default_partition
    return Ladder(tuple(members), nodes, first, walltime_s, why)
