"""Axes of figures: limits, ticks where something was measured, labels with units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from analysis import numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MIN_RATIO = 2.0
"""A logarithmic axis shows at least this ratio of largest to smallest, so that noise doesn't look like a trend."""


def world_size_axis(panel: Axes, sizes: Sequence[int], unit: str) -> None:
    """Logarithmic to base 2, a tick at each measured world size. `unit` is `ranks` or `GPUs`."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    panel.set_xscale("log", base=2)
    panel.set_xlabel(f"world size ({unit})")
    ticks = sorted(set(sizes)) or [1]
    margin = max(1.12, (ticks[-1] / ticks[0]) ** 0.05) if len(ticks) > 1 else 2.0
    panel.set_xlim(ticks[0] / margin, ticks[-1] * margin)
    panel.xaxis.set_major_locator(FixedLocator([float(value) for value in ticks]))
    panel.xaxis.set_major_formatter(FixedFormatter([str(value) for value in ticks]))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.grid(axis="both")


def log_value_axis(panel: Axes, values: Sequence[float], label: str) -> None:
    """Logarithmic y axis around `values` (positive), labelled at round numbers."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    panel.set_yscale("log")
    panel.set_ylabel(label)
    low, high = (min(values), max(values)) if values else (1.0, 10.0)
    middle, half = math.sqrt(low) * math.sqrt(high), math.log(high / low) / 2
    half = max(half * 1.12, math.log(MIN_RATIO) / 2)
    low, high = middle * math.exp(-half), middle * math.exp(half)
    panel.set_ylim(low, high)
    ticks = log_ticks(low, high)
    panel.yaxis.set_major_locator(FixedLocator(ticks))
    panel.yaxis.set_major_formatter(FixedFormatter([numbers.tick(value) for value in ticks]))
    panel.yaxis.set_minor_locator(NullLocator())


def log_ticks(low: float, high: float) -> list[float]:
    """Three to about seven round values between two positive limits."""
    decades = math.log10(high / low)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    if decades > 2.5:
        step = math.ceil((last - first) / 6)
        return [10.0**power for power in range(first, last + 1, step) if low <= 10.0**power <= high]
    for mantissas in (*([(1, 3)] if decades > 1.7 else []), (1, 2, 5), (1, 2, 3, 5, 7)):
        ticks = [m * 10.0**power for power in range(first, last + 1) for m in mantissas]
        inside = [value for value in ticks if low <= value <= high]
        if len(inside) >= 3:
            return inside
    return _even_ticks(low, high)


def _even_ticks(low: float, high: float) -> list[float]:
    """Round values at even distances, thinned where a logarithmic axis would crowd them."""
    from matplotlib.ticker import MaxNLocator

    values = [float(value) for value in MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)]
    return [value for value in values if low <= value <= high and value > 0]


def efficiency_axis(panel: Axes, values: Sequence[float]) -> None:
    """Linear from 0 to a little above 1, or above the largest value; the ideal is 1."""
    panel.set_ylabel("efficiency (1 = ideal)")
    panel.set_ylim(0, max(1.12, 1.06 * max(values, default=1.0)))
    linear_ticks(panel, steps=6)


def linear_ticks(panel: Axes, axis: str = "y", steps: int = 5) -> None:
    """At most that many steps between round ticks of a linear axis, labels as short as possible."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    target = panel.yaxis if axis == "y" else panel.xaxis
    target.set_major_locator(MaxNLocator(nbins=steps, steps=[1, 2, 2.5, 5, 10]))
    target.set_major_formatter(FuncFormatter(lambda value, _: numbers.tick(value)))


def time_unit(largest_s: float) -> tuple[str, float]:
    """A unit in which `largest_s` seconds is a readable number, and its factor: ("ms", 1000.0)."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if largest_s * factor >= 1:
            return unit, factor
    return "ns", 1e9
