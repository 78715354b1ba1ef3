"""The order of runs: repeats interleaved or in blocks, the gate run first. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, TypeVar

T = TypeVar("T")


def repeated(points: Sequence[T], repeats: int, order: Literal["interleave", "block"]) -> Iterator[tuple[T, int]]:
    """(point, repeat from 1): ABCABC when interleaved, so that a machine's drift hits all points alike, or AABBCC."""
    if order == "interleave":
        yield from ((point, repeat) for repeat in range(1, repeats + 1) for point in points)
    else:
        yield from ((point, repeat) for point in points for repeat in range(1, repeats + 1))


def smallest(sizes: Sequence[tuple[int, int] | None]) -> int | None:
    """Which of these (ranks, nodes) opens the gate: fewest ranks, then fewest nodes, then the first.

    None stands for a run that can't run; the answer is None when none can.
    """
    able = [index for index, size in enumerate(sizes) if size is not None]
    return min(able, key=lambda index: (sizes[index], index), default=None)
