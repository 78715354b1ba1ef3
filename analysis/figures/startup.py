"""`startup`: where the time up to the first training step goes.

Above: one bar per set of runs, split into phases; a segment ends when the slowest rank had reached the phase (median
over runs). Below: each phase's minimum, median and maximum over ranks (and over runs), so that stragglers show.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from analysis import axes, captions, numbers, style
from analysis.choice import Choice
from analysis.figures import KINDS, Drawing
from analysis.layout import Sheet
from analysis.queries import no_data, phase_rows, provenance
from analysis.rows import PhaseRow
from campaign import __version__
from campaign.errors import BadInput, Problem
from campaign.tables import PHASES

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

MAX_GROUPS = 9
SHOWN = PHASES[PHASES.index("job_start") + 1 : PHASES.index("first_step") + 1]


@dataclass(frozen=True)
class Spread:
    """One phase of a set of runs, seconds since job_start."""

    low: float
    middle: float
    high: float
    slowest: float
    """Median over runs of the slowest rank."""


@dataclass(frozen=True)
class Group:
    """Runs of one configuration."""

    key: tuple[str, ...]
    """(site, study, strategy, staging, ranks, nodes) as text, in the order of `PARTS`."""
    world_size: int
    valid: bool
    runs: tuple[str, ...]
    left_out: tuple[str, ...]
    """Runs that aren't valid, where others are."""
    phases: dict[str, Spread]

    def segments(self) -> list[tuple[str, float, float]]:
        """(phase, start, end) of the bar. A phase that was not recorded belongs to the next one."""
        found, start = [], 0.0
        for phase in SHOWN:
            if phase in self.phases:
                end = max(start, self.phases[phase].slowest)
                found.append((phase, start, end))
                start = end
        return found


PARTS = ("site", "study", "strategy", "staging", "nodes", "world size (ranks)")


def draw(connection: DuckDBPyConnection, choice: Choice, title: str | None) -> Drawing:
    """The figure `startup` of the chosen runs."""
    rows = [row for row in phase_rows(connection, choice) if row.phase in SHOWN]
    everything = _groups(rows)
    if not everything:
        raise no_data(connection, choice, "startup", KINDS["startup"].needs)
    groups = _fewer(everything)
    names, axis_label = _names(groups)
    phases = [phase for phase in SHOWN if any(phase in group.phases for group in groups)]
    heights = [max(1.5, 0.27 * len(groups) + 0.75), (0.07 * len(groups) + 0.13) * len(phases) + 0.6]
    sheet = Sheet(7.4, 2, 1, row_heights=heights)
    (bars,), (ranges,) = sheet.axes
    names = [sheet.shorten(name, style.TEXT_PT, 2.6) for name in names]
    _draw_bars(bars, groups, names)
    sheet.y_label(bars, axis_label, heights[0] - 0.65)
    markers = _draw_ranges(ranges, groups, names, phases)
    largest = max(spread.high for group in groups for spread in group.phases.values())
    for panel in (bars, ranges):
        _time_axis(panel, largest)
    notes = _notes(groups, len(everything) - len(groups))
    source = provenance(connection, (run for group in groups for run in (*group.runs, *group.left_out)))
    heading = title or f"Start-up on {', '.join(source.sites)}: from job start to the first step"
    figure = sheet.finish(
        title=heading,
        subtitle="Bars: until the slowest rank had reached the phase. Below: each phase over ranks.",
        legends=[_fill_handles(phases), markers],
        notes=notes,
        provenance=captions.provenance_line(source, __version__),
    )
    return Drawing(figure, heading, tuple(notes), source)


def _groups(rows: Sequence[PhaseRow]) -> list[Group]:
    collected = defaultdict[tuple[str, str, str, str, int, int], list[PhaseRow]](list)
    for row in rows:
        key = (row.site, row.study, row.strategy or "", row.staging or "", row.nodes, row.world_size)
        collected[key].append(row)
    groups = []
    for key, members in sorted(collected.items()):
        used = [row for row in members if row.valid] or members
        by_phase = defaultdict[str, list[PhaseRow]](list)
        for row in used:
            by_phase[row.phase].append(row)
        groups.append(
            Group(
                key=tuple(str(part) for part in key),
                world_size=key[-1],
                valid=used[0].valid,
                runs=tuple(sorted({row.run_id for row in used})),
                left_out=tuple(sorted({row.run_id for row in members} - {row.run_id for row in used})),
                phases={phase: _spread(found) for phase, found in by_phase.items()},
            )
        )
    return groups


def _spread(rows: Sequence[PhaseRow]) -> Spread:
    return Spread(
        low=min(row.min_s for row in rows),
        middle=median(row.median_s for row in rows),
        high=max(row.max_s for row in rows),
        slowest=median(row.max_s for row in rows),
    )


def _fewer(groups: list[Group]) -> list[Group]:
    """Too many to read: the largest world size of each configuration. Raises `BadInput` when that is still too many."""
    if len(groups) <= MAX_GROUPS:
        return groups
    largest = {group.key[:4]: group for group in sorted(groups, key=lambda group: group.world_size)}
    kept = [group for group in groups if largest[group.key[:4]] is group]
    if len(kept) > MAX_GROUPS:
        raise BadInput(
            Problem(
                f"{len(kept)} configurations can't be read on one start-up figure (at most {MAX_GROUPS})",
                allowed=f"sites: {', '.join(sorted({group.key[0] for group in kept}))}; "
                f"studies: {', '.join(sorted({group.key[1] for group in kept}))}",
                hint="choose with --site, --study, --series or --where",
            )
        )
    return kept


def _names(groups: Sequence[Group]) -> tuple[list[str], str]:
    """What tells the groups apart, world size always; and the label of that axis."""
    last = len(PARTS) - 1
    nodes_follow = len({(group.key[last - 1], group.key[last]) for group in groups}) == len(
        {g.key[last] for g in groups}
    )
    shown = [
        index
        for index, part in enumerate(PARTS)
        if index == last or (len({group.key[index] for group in groups}) > 1 and not (part == "nodes" and nodes_follow))
    ]
    names = [" · ".join(_worded(PARTS[index], group.key[index]) for index in shown) for group in groups]
    return names, " · ".join(PARTS[index] for index in shown)


def _worded(part: str, value: str) -> str:
    if part in ("nodes", PARTS[-1]):
        thing = "node" if part == "nodes" else "rank"
        return f"{value} {thing}{'' if value == '1' else 's'}"
    return f"no {part}" if value in ("", "none") else value


def _draw_bars(panel: Axes, groups: Sequence[Group], names: Sequence[str]) -> None:
    panel.set_label("bars")
    for place, group in enumerate(groups):
        for phase, start, end in group.segments():
            fill = style.PHASE_FILLS[phase]
            panel.barh(
                place, end - start, left=start, height=0.62, label=phase, **style.fill_arguments(fill, group.valid)
            )
    panel.set_yticks(range(len(groups)), names)
    panel.set_ylim(len(groups) - 0.4, -0.6)


def _draw_ranges(
    panel: Axes, groups: Sequence[Group], names: Sequence[str], phases: Sequence[str]
) -> list[tuple[Artist, str]]:
    """Dot and range per phase and group; the legend's entries when there are several groups."""
    from matplotlib.lines import Line2D

    panel.set_label("ranges")
    styles = list(style.line_styles([str(i) for i in range(len(groups))]).values())
    for place, (group, look) in enumerate(zip(groups, styles, strict=True)):
        found = [(phases.index(phase), spread) for phase, spread in group.phases.items()]
        heights = [row + 0.8 * ((place + 0.5) / len(groups) - 0.5) for row, _ in found]
        middles = [spread.middle for _, spread in found]
        below = [spread.middle - spread.low for _, spread in found]
        above = [spread.high - spread.middle for _, spread in found]
        panel.errorbar(
            middles,
            heights,
            fmt="none",
            ecolor=look.colour,
            elinewidth=1.0,
            capsize=1.8,
            zorder=2,
            xerr=[below, above],
            label=f"spread of {names[place]}",
        )
        panel.plot(
            middles,
            heights,
            linestyle="none",
            marker=look.marker,
            markersize=3.8,
            color=look.colour,
            zorder=3,
            markerfacecolor=look.colour if group.valid else "none",
            label=names[place],
        )
    panel.set_yticks(range(len(phases)), phases)
    panel.set_ylim(len(phases) - 0.45, -0.55)
    panel.set_ylabel("phase (name)")
    for row in range(len(phases) - 1):
        panel.axhline(row + 0.5, color=style.LIGHT, linewidth=0.6, zorder=0)
    if len(groups) == 1:
        return []
    return [
        (Line2D([], [], linestyle="none", marker=look.marker, markersize=4, color=look.colour), name)
        for look, name in zip(styles, names, strict=True)
    ]


def _time_axis(panel: Axes, largest: float) -> None:
    panel.set_xlabel("time since job start (s)")
    panel.set_xlim(0, 1.03 * largest if largest > 0 else 1.0)
    axes.linear_ticks(panel, "x")
    panel.grid(axis="x")


def _fill_handles(phases: Sequence[str]) -> list[tuple[Artist, str]]:
    from matplotlib.patches import Patch

    return [(Patch(**style.fill_arguments(style.PHASE_FILLS[phase], True)), f"to {phase}") for phase in phases]


def _notes(groups: Sequence[Group], left_out: int) -> list[str]:
    counts = [len(group.runs) for group in groups]
    repeats = "no repeats" if max(counts) == 1 else "bars: median over runs"
    notes = [
        f"n = {numbers.span(counts)} run{'s' if max(counts) > 1 else ''} per world size ({repeats}). "
        "Dots: median over ranks (median of runs); whiskers: fastest to slowest rank of all runs."
    ]
    if hollow := sum(not group.valid for group in groups):
        notes.append(f"Hollow: {hollow} configuration(s) without a run that is valid for scaling.")
    if invalid := sum(len(group.left_out) for group in groups):
        notes.append(f"{invalid} run(s) not valid for scaling left out.")
    if left_out:
        notes.append(
            f"Only the largest world size of each configuration; {left_out} smaller ones: --where 'world_size <= N'."
        )
    return notes
