"""The order of runs: repeats interleaved or in blocks, the gate run first. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, TypeVar

from campaign.plan.model import PlannedRun

T = TypeVar("T")


def repeated(points: Sequence[T], repeats: int, order: Literal["interleave", "block"]) -> Iterator[tuple[T, int]]:
    """(point, repeat from 1): ABCABC when interleaved, so that a machine's drift hits all points alike, or AABBCC."""
    if order == "interleave":
        yield from ((point, repeat) for repeat in range(1, repeats + 1) for point in points)
    else:
        yield from ((point, repeat) for point in points for repeat in range(1, repeats + 1))


def gate_index(runs: Sequence[PlannedRun]) -> int | None:
    """Which run opens the gate: the first repeat of the smallest point that can run; None when none can.

    Smallest: fewest ranks, then fewest nodes, then the order of the axes.
    """
    able = [index for index, run in enumerate(runs) if run.can_run]
    if not able:
        return None
    return min(able, key=lambda index: (runs[index].world_size, runs[index].nodes, runs[index].repeat, index))
