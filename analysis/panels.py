"""The four panels of scaling: epoch time, speedup, efficiency, throughput against world size.

Shared by `scaling` (lines are series or sites) and `cross-site` (lines are sites). Draws what the rows say and nothing
else: the only numbers computed here are the ideal lines, a speedup's error bar (from the efficiency's, by the
definition efficiency = speedup x base / world size) and the speedup of runs that aren't valid, by the same formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from analysis import axes, captions, style
from analysis.layout import empty_note
from analysis.rows import RunPoint, ScalingRow

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

METRICS = ("epoch_time", "speedup", "efficiency", "throughput")
IDEAL_DASH = (0, (2, 1.6))
MAX_IDEALS = 3


@dataclass(frozen=True)
class Line:
    """One line of a panel: a series on a site."""

    name: str
    style: style.LineStyle
    rows: tuple[ScalingRow, ...]
    """By world size; rows without a valid run have no value."""
    invalid: tuple[RunPoint, ...] = ()
    """Measured, but not valid: drawn hollow."""

    @property
    def base(self) -> ScalingRow | None:
        """The baseline's row, if it was measured."""
        return next((row for row in self.rows if row.world_size == row.base_world_size and _positive(row)), None)

    @property
    def sizes(self) -> list[int]:
        """World sizes at which something is drawn."""
        return sorted(
            {row.world_size for row in self.rows if _positive(row)} | {run.world_size for run in self.invalid}
        )


def _positive(row: ScalingRow) -> bool:
    return row.epoch_time_s is not None and row.epoch_time_s > 0


@dataclass(frozen=True)
class Dot:
    """One value with its spread; `low` and `high` are None without repeats."""

    world_size: int
    value: float
    low: float | None
    high: float | None


def dots(line: Line, metric: str) -> list[Dot]:
    """Values of one metric along a line, by world size; unmeasured ones left out."""
    found = []
    for row in line.rows:
        value, low, high = _values(row, metric)
        if value is None or (metric != "efficiency" and value <= 0):
            continue
        spread = captions.has_spread(row)
        found.append(Dot(row.world_size, value, low if spread else None, high if spread else None))
    return found


def _values(row: ScalingRow, metric: str) -> tuple[float | None, float | None, float | None]:
    if metric == "epoch_time":
        return row.epoch_time_s, row.epoch_time_lo_s, row.epoch_time_hi_s
    if metric == "throughput":
        return row.throughput_per_s, row.throughput_lo, row.throughput_hi
    if metric == "efficiency":
        return row.efficiency, row.efficiency_lo, row.efficiency_hi
    q = row.world_size / row.base_world_size if row.base_world_size else None
    low, high = (
        (None if value is None or q is None else value * q) for value in (row.efficiency_lo, row.efficiency_hi)
    )
    return row.speedup, low, high


def hollow(line: Line, metric: str) -> list[tuple[int, float]]:
    """(world size, value) of the runs that aren't valid, by the formulas of the view `scaling`."""
    base = line.base
    found = []
    for run in line.invalid:
        value = run.epoch_time_s if metric == "epoch_time" else run.throughput_per_s
        if metric in ("speedup", "efficiency"):
            if base is None or not base.throughput_per_s or value is None:
                continue
            value /= base.throughput_per_s
            if metric == "efficiency":
                value *= base.world_size / run.world_size
        if value is not None and value > 0:
            found.append((run.world_size, value))
    return found


def draw_panels(panels: Sequence[Axes], lines: Sequence[Line], unit: str, throughput_unit: str) -> None:
    """Draw the four metrics into four panels, in the order of `METRICS`. `unit` is that of the world size."""
    labels = {
        "epoch_time": "epoch time (s)",
        "speedup": "speedup (×)",  # noqa: RUF001
        "throughput": f"throughput ({throughput_unit})",
    }
    sizes = sorted({size for line in lines for size in line.sizes})
    for panel, metric in zip(panels, METRICS, strict=True):
        panel.set_label(metric)
        axes.world_size_axis(panel, sizes, unit)
        values = [value for line in lines for value in _draw_line(panel, line, metric)]
        values += _draw_ideal(panel, lines, metric)
        if metric == "efficiency":
            axes.efficiency_axis(panel, values)
        else:
            axes.log_value_axis(panel, values, labels[metric])
        if not values or (metric == "efficiency" and not any(dots(x, metric) or hollow(x, metric) for x in lines)):
            empty_note(panel, _why_empty(metric))


def _why_empty(metric: str) -> str:
    if metric == "throughput":
        return "no throughput:\nsamples per epoch\nnot recorded"
    return "no baseline:\nits point has no valid run,\nso there is nothing\nto compare with"


def _draw_line(panel: Axes, line: Line, metric: str) -> list[float]:
    """Line, error bars and hollow points; returns every y that must be inside the panel."""
    colour, marker, dash = line.style
    solid = dots(line, metric)
    x, y = [dot.world_size for dot in solid], [dot.value for dot in solid]
    if solid:
        panel.plot(
            x,
            y,
            color=colour,
            marker=marker,
            linestyle=dash,
            label=line.name,
            zorder=3,
            clip_on=False,
            markersize=line.style.size,
            markeredgecolor="white",
            markeredgewidth=0.4,
        )
    barred = [(dot, dot.low, dot.high) for dot in solid if dot.low is not None and dot.high is not None]
    if barred:
        below = [max(0.0, dot.value - low) for dot, low, _ in barred]
        above = [max(0.0, high - dot.value) for dot, _, high in barred]
        panel.errorbar(
            [dot.world_size for dot, _, _ in barred],
            [dot.value for dot, _, _ in barred],
            yerr=[below, above],
            fmt="none",
            ecolor=colour,
            elinewidth=1.0,
            capsize=2.5,
            capthick=1.0,
            zorder=2.5,
            label=f"spread of {line.name}",
        )
    open_points = hollow(line, metric)
    if open_points:
        panel.plot(
            [size for size, _ in open_points],
            [value for _, value in open_points],
            linestyle="none",
            marker=marker,
            markersize=line.style.size,
            markerfacecolor="none",
            markeredgecolor=colour,
            markeredgewidth=1.1,
            zorder=2,
            clip_on=False,
            label=f"not valid: {line.name}",
        )
    ends = [value for _, low, high in barred for value in (low, high)]
    return [value for value in [*y, *ends, *(v for _, v in open_points)] if metric == "efficiency" or value > 0]


class Ideal(NamedTuple):
    """A straight line on logarithmic axes, from a baseline to the largest world size of its line."""

    start: int
    end: int
    at_start: float
    at_end: float


def ideals(lines: Sequence[Line], metric: str) -> list[Ideal]:
    """Linear scaling from each baseline; from the fastest only when there are more than `MAX_IDEALS` lines."""
    found = list[Ideal]()
    for line in lines:
        base, end = line.base, max(line.sizes)
        if base is None or base.speedup is None or end <= base.world_size:
            continue
        height = {"epoch_time": base.epoch_time_s, "speedup": 1.0, "throughput": base.throughput_per_s}[metric]
        if height is not None:
            gain = end / base.world_size
            found.append(
                Ideal(base.world_size, end, height, height / gain if metric == "epoch_time" else height * gain)
            )
    if len(lines) <= MAX_IDEALS and metric != "speedup":
        return found
    sign = -1 if metric == "epoch_time" else 1
    best = [
        max((i for i in found if i.start == start), key=lambda i: (sign * i.at_start, i.end)) for start, *_ in found
    ]
    return list(dict.fromkeys(best))


def _draw_ideal(panel: Axes, lines: Sequence[Line], metric: str) -> list[float]:
    """Draw what `ideals` says; returns the y values that must be inside the panel."""
    look: dict[str, Any] = {
        "color": style.GREY,
        "linestyle": IDEAL_DASH,
        "linewidth": 1.0,
        "zorder": 1,
        "label": "ideal",
    }
    if metric == "efficiency":
        panel.axhline(1, **look)
        return []
    drawn = ideals(lines, metric)
    for ideal in drawn:
        panel.plot([ideal.start, ideal.end], [ideal.at_start, ideal.at_end], **look)
    return [y for ideal in drawn for y in (ideal.at_start, ideal.at_end)]


def legends(lines: Sequence[Line], crowded: bool = False) -> list[list[tuple[Artist, str]]]:
    """One entry per name, then the ideal and the hollow points when there are any; these apart when names are many."""
    from matplotlib.lines import Line2D

    entries: dict[str, Artist] = {}
    for line in sorted(lines, key=lambda line: not any(_positive(row) for row in line.rows)):
        colour, marker, dash = line.style
        look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": line.style.size}
        if any(_positive(row) for row in line.rows):
            look |= {"linestyle": dash, "markeredgecolor": "white", "markeredgewidth": 0.4}
        else:
            look |= {"linestyle": "none", "markerfacecolor": "none", "markeredgewidth": 1.1}
        entries.setdefault(line.name, Line2D([], [], **look))
    named = [(entries[name], name) for name in sorted(entries)]
    others: list[tuple[Artist, str]] = []
    if any(line.base is not None for line in lines):
        which = "the fastest baseline" if crowded else "the baseline"
        ideal = Line2D([], [], color=style.GREY, linestyle=IDEAL_DASH, linewidth=1.0)
        others.append((ideal, f"ideal (linear from {which})"))
    if any(line.invalid for line in lines):
        look = {"linestyle": "none", "marker": "o", "markerfacecolor": "none", "markeredgewidth": 1.1}
        others.append((Line2D([], [], markeredgecolor=style.INK, **look), "hollow: run not valid"))
    return [named, others] if len(named) > 4 else [[*named, *others]]


def world_unit(rows: Sequence[ScalingRow]) -> str:
    """`GPUs` when every rank has one of its own, else `ranks`."""
    return "GPUs" if rows and all(row.gpus == row.world_size for row in rows) else "ranks"
