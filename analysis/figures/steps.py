"""`steps`: what a training step consists of, by world size; a row of two panels (time, share) per line.

Parts come from the view `windows`: the median over ranks of each rank's mean per step, averaged over the windows of
non-warm-up epochs, then the median over runs. Backward is drawn without its exposed communication; "other" is the rest
of the step. Of runs that recorded the whole step alone, that is drawn as one part. Runs that recorded no windows show
what `epochs` has: the slowest rank's data wait and exposed communication.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from analysis import axes, captions, numbers, style
from analysis.choice import Choice
from analysis.figures import KINDS, Drawing
from analysis.layout import Sheet
from analysis.names import Key, line_names
from analysis.queries import no_data, provenance, step_rows
from analysis.rows import StepRow
from campaign import __version__
from campaign.errors import BadInput, Problem

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

MAX_ROWS = 8
PARTS = {
    "data wait": "data_wait_s",
    "copy to device": "h2d_s",
    "forward": "forward_s",
    "backward": "backward_s",
    "exposed communication": "comm_exposed_s",
    "optimizer": "optimizer_s",
}
"""Name on the figure -> column; `other` follows from `step_s`."""


VISIBLE_SHARE = 0.001
"""Parts that are no more than this in every bar have no place in the legend."""


@dataclass(frozen=True)
class Bar:
    """One world size of one line: seconds per step."""

    world_size: int
    valid: bool
    runs: tuple[str, ...]
    parts: dict[str, float]
    """By the names of `style.STEP_FILLS`, bottom first; unmeasured parts are absent."""
    step_s: tuple[float, float, float] | None
    """Smallest, median and largest run's whole step; None when not recorded."""


def draw(connection: DuckDBPyConnection, choice: Choice, title: str | None) -> Drawing:
    """The figure `steps` of the chosen runs."""
    rows = _of_steps(step_rows(connection, choice))
    lines = _lines(rows)
    if not lines:
        raise no_data(connection, choice, "steps", KINDS["steps"].needs)
    _refuse_crowds(lines)
    largest = max(top(bar) for bars in lines.values() for bar in bars)
    unit, factor = axes.time_unit(largest)
    sizes = sorted({bar.world_size for bars in lines.values() for bar in bars})
    sheet = Sheet(10.5 if len(sizes) > 6 else 7.4, len(lines), 2, row_heights=[2.6] * len(lines))
    for row, (name, bars) in enumerate(lines.items()):
        absolute, share = sheet.axes[row]
        _draw_bars(absolute, bars, sizes, factor)
        absolute.set_label("time")
        absolute.set_ylabel(f"time per step ({unit})")
        absolute.set_ylim(0, 1.06 * largest * factor or 1.0)
        _draw_bars(share, bars, sizes, None)
        share.set_label("share")
        share.set_ylabel("share of the step (%)")
        share.set_ylim(0, 100)
        for panel in (absolute, share):
            axes.linear_ticks(panel)
        if len(lines) > 1:
            sheet.row_title(row, name)
    notes = _notes(lines, rows)
    source = provenance(connection, (row.run_id for row in rows))
    heading = title or f"Parts of a training step: {', '.join(source.studies)} on {', '.join(source.sites)}"
    figure = sheet.finish(
        title=heading,
        subtitle="Median over ranks, mean over the steps of non-warm-up epochs",
        legends=[_handles(lines)],
        notes=notes,
        provenance=captions.provenance_line(source, __version__),
    )
    return Drawing(figure, heading, tuple(notes), source)


def top(bar: Bar) -> float:
    """Height of the stack or of its whisker, whichever is higher."""
    return max(sum(bar.parts.values()), bar.step_s[2] if bar.step_s else 0.0)


def split(seconds: dict[str, float]) -> dict[str, float]:
    """Parts that add up to the step; the whole step when it has none.

    `backward_s` holds the exposed communication, so that is taken out of it.
    """
    parts = {name: seconds[column] for name, column in PARTS.items() if column in seconds}
    if "backward" in parts and "exposed communication" in parts:
        parts["backward"] = max(0.0, parts["backward"] - parts["exposed communication"])
    if not parts:
        return {style.WHOLE_STEP: seconds["step_s"]} if "step_s" in seconds else {}
    if "step_s" in seconds:
        parts["other"] = max(0.0, seconds["step_s"] - sum(parts.values()))
    return parts


def _of_steps(rows: Sequence[StepRow]) -> list[StepRow]:
    """Without runs that recorded epochs alone: their time by the number of steps says nothing of a step."""
    told = {row.run_id for row in rows if row.source != "epochs" or row.part != "step_s"}
    return [row for row in rows if row.run_id in told]


def _lines(rows: Sequence[StepRow]) -> dict[str, list[Bar]]:
    collected = defaultdict[Key, defaultdict[int, list[StepRow]]](lambda: defaultdict(list))
    for row in rows:
        collected[row.site, row.study, row.series, row.strategy][row.world_size].append(row)
    names, several = line_names(collected), len({key[1] for key in collected}) > 1
    lines = {}
    for key, by_size in sorted(collected.items(), key=lambda item: (item[0][1], names[item[0]])):
        name = f"{key[1]} · {names[key]}" if several else names[key]
        bars = [_bar(size, found) for size, found in sorted(by_size.items())]
        lines[name] = [bar for bar in bars if sum(bar.parts.values()) > 0]
    return {name: bars for name, bars in lines.items() if bars}


def _bar(world_size: int, rows: Sequence[StepRow]) -> Bar:
    used = [row for row in rows if row.valid] or rows
    runs = defaultdict[str, dict[str, float]](dict)
    for row in used:
        runs[row.run_id][row.part] = row.seconds
    whole = style.WHOLE_STEP
    stacks = [split(seconds) for seconds in runs.values()]
    # a run without parts says nothing of where the time of the others goes
    parts = [stack for stack in stacks if whole not in stack] or stacks
    middle = {
        name: median(part[name] for part in parts if name in part)
        for name in style.STEP_FILLS
        if any(name in part for part in parts)
    }
    steps = [seconds["step_s"] for seconds in runs.values() if "step_s" in seconds]
    return Bar(
        world_size=world_size,
        valid=used[0].valid,
        runs=tuple(sorted(runs)),
        parts=middle,
        step_s=(min(steps), median(steps), max(steps)) if steps else None,
    )


def _draw_bars(panel: Axes, bars: Sequence[Bar], sizes: Sequence[int], factor: float | None) -> None:
    """Stacks in seconds x factor with the whole step's spread, or in per cent when `factor` is None."""
    from matplotlib.ticker import FixedFormatter, FixedLocator

    for bar in bars:
        place = sizes.index(bar.world_size)
        bottom, scale = 0.0, factor or 100 / sum(bar.parts.values())
        for name, seconds in bar.parts.items():
            if seconds <= 0:
                continue
            arguments = style.fill_arguments(style.STEP_FILLS[name], bar.valid)
            panel.bar(place, seconds * scale, bottom=bottom, width=0.68, label=name, **arguments)
            bottom += seconds * scale
        if factor is not None and bar.step_s is not None and len(bar.runs) > 1:
            low, middle, high = (value * factor for value in bar.step_s)
            panel.errorbar(
                [place],
                [middle],
                yerr=[[middle - low], [high - middle]],
                fmt="none",
                ecolor=style.INK,
                elinewidth=1.0,
                capsize=3,
                label="spread of the step",
            )
    panel.xaxis.set_major_locator(FixedLocator([float(place) for place in range(len(sizes))]))
    panel.xaxis.set_major_formatter(FixedFormatter([str(size) for size in sizes]))
    panel.set_xlim(-0.6, max(len(sizes), 2) - 0.4)
    panel.set_xlabel("world size (ranks)")
    panel.grid(axis="y")


def _handles(lines: dict[str, list[Bar]]) -> list[tuple[Artist, str]]:
    from matplotlib.patches import Patch

    drawn = _visible(bar for bars in lines.values() for bar in bars)
    return [
        (Patch(**style.fill_arguments(fill, True)), name) for name, fill in style.STEP_FILLS.items() if name in drawn
    ]


def _visible(bars: Iterable[Bar]) -> set[str]:
    """Parts that a reader can find in some bar."""
    return {
        name for bar in bars for name, seconds in bar.parts.items() if seconds > VISIBLE_SHARE * sum(bar.parts.values())
    }


def _refuse_crowds(lines: dict[str, list[Bar]]) -> None:
    if len(lines) > MAX_ROWS:
        raise BadInput(
            Problem(
                f"{len(lines)} lines can't be read on one figure of step parts (at most {MAX_ROWS})",
                allowed="; ".join(lines),
                hint="choose with --site, --study, --series or --where",
            )
        )


def _notes(lines: dict[str, list[Bar]], rows: Sequence[StepRow]) -> list[str]:
    bars = [bar for line in lines.values() for bar in line]
    counts = [len(bar.runs) for bar in bars]
    spread = (
        "No repeats, so no whiskers: the spread is unknown."
        if max(counts) == 1
        else "Whiskers: whole step, smallest to largest run" + (" (none where n = 1)." if min(counts) == 1 else ".")
    )
    notes = [f"n = {numbers.span(counts)} run{'s' if max(counts) > 1 else ''} per bar. {spread}"]
    recorded = {name for bar in bars for name in bar.parts}
    missing = [name for name in PARTS if name not in recorded]
    if recorded == {style.WHOLE_STEP}:
        notes.append("Recorded is the whole step (step_s) alone, none of its parts.")
    elif missing:
        notes.append(f"Not recorded: {', '.join(missing)}; their time is in other parts.")
    visible = _visible(bars)
    if tiny := [name for name in style.STEP_FILLS if name in recorded - visible - {"other"}]:
        notes.append(f"At most {100 * VISIBLE_SHARE:g} % of any step: {', '.join(tiny)}.")
    drawn = {run for bar in bars for run in bar.runs}
    if any(row.source == "epochs" for row in rows if row.run_id in drawn):
        notes.append("Runs without step windows: data wait and exposed communication of the slowest rank, from epochs.")
    if any(row.source == "all windows" for row in rows if row.run_id in drawn):
        notes.append("Runs without epochs: all their steps count, as nothing tells which were warm-up.")
    if hollow := sum(not bar.valid for bar in bars):
        notes.append(f"Hollow: {hollow} bar(s) without a run that is valid for scaling.")
    left_out = {row.run_id for row in rows} - drawn
    if left_out:
        notes.append(f"{len(left_out)} run(s) not valid for scaling left out.")
    return notes
