"""`scaling`: epoch time, speedup, efficiency and throughput of every series; one row of panels per study.

Within a study the lines are strategies (or other series) and sites together while seven colours tell them apart, else
one row per site.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis import captions, style, work
from analysis.choice import Choice
from analysis.figures import KINDS, Drawing
from analysis.fits import AmdahlFit, fit_amdahl
from analysis.layout import Sheet
from analysis.names import Key, line_names
from analysis.panels import MAX_IDEALS, Line, draw_panels, legends, world_unit
from analysis.queries import no_data, provenance, run_points, scaling_rows
from analysis.rows import RunPoint, ScalingRow
from campaign import __version__
from campaign.errors import BadInput, Problem

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MAX_ROWS = 8
SCALING_WORDS = {"strong": "strong scaling", "weak": "weak scaling", "none": "no scaling rule"}


@dataclass(frozen=True)
class Facet:
    """One row of panels."""

    title: str
    short: str
    """The title in as few words as tell it from the others."""
    rows: tuple[ScalingRow, ...]
    runs: tuple[RunPoint, ...]
    names: dict[Key, str]

    def lines(self, styles: dict[str, style.LineStyle]) -> list[Line]:
        """Lines in the order of their names."""
        found = []
        for key, name in sorted(self.names.items(), key=lambda item: item[1]):
            rows = tuple(row for row in self.rows if key_of(row) == key)
            invalid = tuple(run for run in self.runs if key_of(run) == key and not run.valid and run.epoch_time_s)
            line = Line(name, styles[name], rows, invalid)
            if line.sizes:
                found.append(line)
        return found

    @property
    def unit(self) -> str:
        """Unit of the throughput."""
        return next((row.throughput_unit for row in self.rows if row.throughput_unit), "samples/s")


def params_of(runs: Sequence[RunPoint]) -> dict[Key, dict[str, Any]]:
    """Parameters of each line."""
    return {key_of(run): run.params for run in runs}


def key_of(row: ScalingRow | RunPoint) -> Key:
    """What makes a line."""
    return row.site, row.study, row.series, row.strategy


def draw(connection: DuckDBPyConnection, choice: Choice, title: str | None) -> Drawing:
    """The figure `scaling` of the chosen runs."""
    rows, runs = scaling_rows(connection, choice), run_points(connection, choice)
    facets = [facet for facet in _facets(rows, runs) if facet_draws(facet)]
    if not facets:
        raise no_data(connection, choice, "scaling", KINDS["scaling"].needs)
    keys = [key for facet in facets for key in facet.names]
    sites, studies = sorted({site for site, *_ in keys}), list(dict.fromkeys(study for _, study, *_ in keys))
    heading = title or f"{_listed(studies)} on {_listed(sites)}"
    return compose(connection, facets, title=heading, subtitle=_subtitle(facets), extra_notes=())


def facet_draws(facet: Facet) -> bool:
    """True when the facet has anything to draw."""
    measured = any(row.epoch_time_s is not None and row.epoch_time_s > 0 for row in facet.rows)
    return measured or any(not run.valid and run.epoch_time_s for run in facet.runs)


def compose(
    connection: DuckDBPyConnection, facets: Sequence[Facet], *, title: str, subtitle: str, extra_notes: Sequence[str]
) -> Drawing:
    """Rows of panels, legend, notes and provenance; shared with `cross-site`."""
    refuse_crowds(facets)
    styles = style.line_styles(sorted({name for facet in facets for name in facet.names.values()}))
    drawn = [facet.lines(styles) for facet in facets]
    single = len(facets) == 1
    if single:
        sheet = Sheet(7.4, 2, 2, row_heights=[2.45, 2.45])
        panels = [[*sheet.axes[0], *sheet.axes[1]]]
    else:
        sheet = Sheet(13.2, len(facets), 4, row_heights=[2.75] * len(facets))
        panels = sheet.axes
    for index, (facet, lines) in enumerate(zip(facets, drawn, strict=True)):
        draw_panels(panels[index], lines, world_unit(facet.rows), facet.unit)
        if not single:
            sheet.row_title(index, facet.title)
    notes = [*extra_notes, *_notes(facets, drawn)]
    source = provenance(connection, (run.run_id for facet in facets for run in facet.runs))
    figure = sheet.finish(
        title=title,
        subtitle=subtitle,
        legends=legends([line for lines in drawn for line in lines], crowded=max(map(len, drawn)) > MAX_IDEALS),
        notes=notes,
        provenance=captions.provenance_line(source, __version__),
    )
    return Drawing(figure, title, tuple(notes), source)


def refuse_crowds(facets: Sequence[Facet]) -> None:
    """Raise `BadInput` when nobody could read the figure."""
    crowd = max(len(facet.names) for facet in facets)
    if len(facets) <= MAX_ROWS and crowd <= style.MAX_LINES:
        return
    what = f"{len(facets)} rows of panels" if len(facets) > MAX_ROWS else f"{crowd} lines on one panel"
    studies = sorted({row.study for facet in facets for row in facet.rows})
    sites = sorted({row.site for facet in facets for row in facet.rows})
    raise BadInput(
        Problem(
            f"{what} can't be read (at most {MAX_ROWS} rows, {style.MAX_LINES} lines each)",
            allowed=f"studies: {', '.join(studies)}; sites: {', '.join(sites)}",
            hint="choose with --study, --site, --series or --where",
        )
    )


def _facets(rows: Sequence[ScalingRow], runs: Sequence[RunPoint]) -> list[Facet]:
    facets = []
    several = len({row.study for row in rows} | {run.study for run in runs}) > 1
    for study in sorted({row.study for row in rows} | {run.study for run in runs}):
        own, measured = [r for r in rows if r.study == study], [r for r in runs if r.study == study]
        keys = {key_of(row) for row in own} | {key_of(run) for run in measured}
        sites = sorted({site for site, *_ in keys})
        together = len(keys) <= len(style.LINE_COLOURS) or len(sites) == 1
        for group in [sites] if together else [[site] for site in sites]:
            facets.append(
                Facet(
                    title=f"{study} on {_listed(group)}",
                    short=" ".join([study] * several + ([] if together else group)),
                    rows=tuple(row for row in own if row.site in group),
                    runs=tuple(run for run in measured if run.site in group),
                    names=line_names((key for key in keys if key[0] in group), params=params_of(measured)),
                )
            )
    return facets


def _notes(facets: Sequence[Facet], drawn: Sequence[Sequence[Line]]) -> list[str]:
    rows = [row for facet in facets for row in facet.rows]
    runs = [run for facet in facets for run in facet.runs]
    hollow = sum(len(line.invalid) for lines in drawn for line in lines)
    notes = [captions.spread_note(rows), captions.invalid_note(runs, hollow), captions.duplication_note(rows)]
    notes.append(captions.quantisation_note(rows))
    notes += captions.amdahl_notes(_fits(facets, drawn))
    return [note for note in notes if note]


def _fits(facets: Sequence[Facet], drawn: Sequence[Sequence[Line]]) -> list[tuple[str, AmdahlFit]]:
    """Amdahl fits of the lines that have world sizes enough, by name."""
    fits = []
    for facet, lines in zip(facets, drawn, strict=True):
        for line in lines:
            base, keys = line.base, {key for key, name in facet.names.items() if name == line.name}
            if base is None:
                continue
            runs = [run for run in facet.runs if run.valid and key_of(run) in keys]
            fit = fit_amdahl([(run.world_size, run.epoch_time_s or 0.0) for run in runs], base.world_size)
            if fit is not None:
                fits.append((line.name if len(facets) == 1 else f"{facet.short} {line.name}", fit))
    return fits


def _subtitle(facets: Sequence[Facet]) -> str:
    """Kind of scaling and work, when one line can say it."""
    kinds = [SCALING_WORDS.get(row.scaling or "", "") for facet in facets for row in facet.rows]
    parts = [" and ".join(kind for kind in dict.fromkeys(kinds) if kind)]
    if len({run.study for facet in facets for run in facet.runs}) == 1:
        parts.append(work.describe([run for facet in facets for run in facet.runs]))
    return " · ".join(part for part in parts if part)


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
