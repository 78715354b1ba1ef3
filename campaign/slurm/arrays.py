"""Indices of job arrays: runs of numbers that follow each other, and the text that Slurm takes for them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

Span = tuple[int, int]
"""First and last index, both included."""


def spans(indices: Iterable[int]) -> list[Span]:
    """Runs of consecutive numbers, ascending; each number once."""
    found: list[Span] = []
    for index in sorted(set(indices)):
        if found and index == found[-1][1] + 1:
            found[-1] = found[-1][0], index
        else:
            found.append((index, index))
    return found


def text(parts: Iterable[Span]) -> str:
    """`0-4,7`, as sbatch and scancel take it."""
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in parts)
