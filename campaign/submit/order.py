"""In which order runs are queued where not all fit at once. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from campaign.plan.model import PlannedRun
    from campaign.submit.batch import Item

Element = tuple["Item", ...]
"""What becomes one array element: one run, or a serial ladder of them in its own order."""


def elements(items: Iterable[Item]) -> list[Element]:
    """Items as array elements, the most useful first.

    First the base point of every curve, without which the others say little; then from few ranks to many, since small
    runs start sooner and cost less; then as planned. A ladder counts as its smallest run, and keeps its order.
    """
    single: list[Element] = []
    ladders: dict[tuple[Any, ...], list[Item]] = {}
    for item in items:
        if item.run.pack == "serial":
            ladders.setdefault(item.run.placement(), []).append(item)
        else:
            single.append((item,))
    found = [*single, *(tuple(ladder) for ladder in ladders.values())]
    base = _base_sizes(found)
    return sorted(found, key=lambda element: min(_use(item.run, base) for item in element))


def _use(run: PlannedRun, base: dict[tuple[str, str, str], int]) -> tuple[bool, int, int]:
    """Smaller is sooner."""
    return not _is_base(run, base), run.world_size, run.order


def _base_sizes(found: Sequence[Element]) -> dict[tuple[str, str, str], int]:
    """Ranks of the smallest run of every curve among these."""
    sizes: dict[tuple[str, str, str], int] = {}
    for element in found:
        for item in element:
            curve = item.run.site, item.run.study, item.run.series
            sizes[curve] = min(item.run.world_size, sizes.get(curve, item.run.world_size))
    return sizes


def _is_base(run: PlannedRun, base: dict[tuple[str, str, str], int]) -> bool:
    """True for the first repeat of the point that speedup is measured against."""
    if run.repeat > 1:
        return False
    if isinstance(run.baseline, dict):
        return all(run.axes.get(axis) == value for axis, value in run.baseline.items())
    return run.world_size == base[run.site, run.study, run.series]
