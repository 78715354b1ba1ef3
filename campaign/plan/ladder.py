"""`pack: serial`: the runs of a study that share one allocation, one after another on the same nodes. Pure.

Runs keep their order (repeats interleaved: ABCABC), so a machine's drift hits all sizes alike. An allocation has the
nodes of its largest run. A ladder that is longer than the partition's time limit is cut, between repeats where it can.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from campaign.plan.model import START_S
from campaign.plan.shape import Shape, refusals
from campaign.site import Partition, Qos, Site


@dataclass(frozen=True, slots=True)
class Rung:
    """One run of a ladder, as far as packing needs it."""

    shape: Shape
    repeat: int
    named: str | None
    """The partition that study or axis ask for; None: by size."""


@dataclass(frozen=True, slots=True)
class Place:
    """A partition and a QOS in it."""

    partition: str
    qos: str | None
    limits: tuple[Partition, Qos | None]

    def against(self, nodes: int, walltime_s: float) -> list[str]:
        """What the two have against this size."""
        partition, qos = self.limits
        reasons = {} if qos is None else refusals(qos, nodes, walltime_s)
        own = (f"QOS {self.qos} {reason}" for reason in reasons.values())
        return [*refusals(partition, nodes, walltime_s).values(), *own]

    @property
    def max_time(self) -> float:
        """Seconds; infinite where no limit is known."""
        partition, qos = self.limits
        limits = (partition.max_time, None if qos is None else qos.max_time)
        return min((limit for limit in limits if limit is not None), default=math.inf)


@dataclass(frozen=True, slots=True)
class Ladder:
    """Which runs share an allocation: `members` are indices into the rungs that were packed."""

    members: tuple[int, ...]
    nodes: int
    partition: str
    qos: str | None
    walltime_s: int
    refused: str | None = None
    """Why no partition takes it; None when one does."""


def ladders(site: Site, rungs: Sequence[Rung], qos: str | None) -> list[Ladder]:
    """The rungs, in order, in as few allocations as partitions, QOS and time limits allow.

    `qos`: the one that study or site name; None: by size, where a partition has several.
    """
    groups: dict[str | None, list[int]] = {}
    for index, rung in enumerate(rungs):
        groups.setdefault(rung.named, []).append(index)
    found: list[Ladder] = []
    for named, group in groups.items():
        nodes = max(rungs[index].shape.nodes for index in group)
        places = _places(site, named, qos)
        longest = max((place.max_time for place in places if not place.against(nodes, 0)), default=math.inf)
        found += [_ladder(site, rungs, part, nodes, places) for part in _cut(rungs, group, longest)]
    return found


def _places(site: Site, named: str | None, qos: str | None) -> list[Place]:
    """Where these runs may go, best first."""
    names = [named] if named else site.partition_by_size or [site.default_partition]
    places = []
    for name in (name for name in names if name in site.partitions):
        partition = site.partitions[name]
        by_size = [qos] if qos is not None or not partition.qos_by_size else partition.qos_by_size
        places += [Place(name, one, (partition, partition.qos.get(one) if one else None)) for one in by_size]
    return places


def _cut(rungs: Sequence[Rung], group: Sequence[int], limit: float) -> list[list[int]]:
    """The group in parts that fit the limit: whole repeats where one fits, else whatever fits in order."""
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


def _ladder(site: Site, rungs: Sequence[Rung], members: Sequence[int], nodes: int, places: Sequence[Place]) -> Ladder:
    walltime_s = _seconds(rungs, members) + START_S
    reasons: dict[str, list[str]] = {}
    for place in places:
        against = place.against(nodes, walltime_s)
        if not against:
            return Ladder(tuple(members), nodes, place.partition, place.qos, walltime_s)
        reasons.setdefault(place.partition, []).extend(against)
    why = "; ".join(f"{name}: {', '.join(dict.fromkeys(against))}" for name, against in reasons.items())
    first = (
        places[0] if places else Place(site.default_partition, None, (site.partitions[site.default_partition], None))
    )
    return Ladder(tuple(members), nodes, first.partition, first.qos, walltime_s, why)
