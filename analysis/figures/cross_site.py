"""`cross-site`: two or more sites on one figure, a line per site; a row of panels per study and strategy.

Speedup and efficiency compare a site with itself, so a faster site may look worse there: throughput stands beside them.
Whether the sites did the same work is said under the figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from analysis import work
from analysis.choice import Choice
from analysis.figures import KINDS, Drawing
from analysis.figures.scaling import Facet, compose, key_of, params_of
from analysis.names import line_names
from analysis.queries import NoData, no_data, run_points, scaling_rows
from analysis.rows import RunPoint, ScalingRow
from campaign.errors import Problem

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def draw(connection: DuckDBPyConnection, choice: Choice, title: str | None) -> Drawing:
    """The figure `cross-site` of the chosen runs."""
    rows, runs = scaling_rows(connection, choice), run_points(connection, choice)
    facets = _facets(rows, runs)
    if not facets:
        raise _why_not(connection, choice, runs)
    sites = sorted({row.site for facet in facets for row in facet.rows})
    titles = [facet.title for facet in facets]
    heading = (
        title or f"{', '.join(dict.fromkeys(r.study for f in facets for r in f.rows))} across sites: {', '.join(sites)}"
    )
    notes = [
        *_work_notes(facets),
        "Speedup and efficiency compare each site with its own baseline, throughput the sites.",
    ]
    subtitle = titles[0] if len(titles) == 1 else "one line per site"
    return compose(connection, facets, title=heading, subtitle=subtitle, extra_notes=notes)


def _facets(rows: Sequence[ScalingRow], runs: Sequence[RunPoint]) -> list[Facet]:
    facets = []
    for study, strategy in dict.fromkeys((row.study, row.strategy) for row in sorted(rows, key=_by_study)):
        own = tuple(row for row in rows if (row.study, row.strategy) == (study, strategy))
        measured = tuple(run for run in runs if (run.study, run.strategy) == (study, strategy))
        facet = Facet(
            title=" · ".join(part for part in (study, strategy, work.describe(measured)) if part),
            short=" ".join(part for part in (study, strategy) if part),
            rows=own,
            runs=measured,
            names=line_names(
                {key_of(row) for row in own} | {key_of(run) for run in measured},
                keep_site=True,
                params=params_of(measured),
            ),
        )
        if len(_measured_sites(facet)) > 1:
            facets.append(facet)
    return facets


def _by_study(row: ScalingRow) -> tuple[str, str]:
    return row.study, row.strategy or ""


def _measured_sites(facet: Facet) -> set[str]:
    """Sites of which something is drawn, be it a hollow point."""
    sites = {row.site for row in facet.rows if row.epoch_time_s is not None and row.epoch_time_s > 0}
    return sites | {run.site for run in facet.runs if run.epoch_time_s is not None and run.epoch_time_s > 0}


def _work_notes(facets: Sequence[Facet]) -> list[str]:
    sentences = dict[str, list[str]]()
    for facet in facets:
        runs = [run for run in facet.runs if run.valid] or [run for run in facet.runs if run.epoch_time_s]
        _, sentence = work.compare(runs, facet.rows)
        sentences.setdefault(sentence, []).append(facet.title)
    if len(sentences) == 1:
        return list(sentences)
    return [f"{'; '.join(titles)}: {sentence}" for sentence, titles in sentences.items()]


def _why_not(connection: DuckDBPyConnection, choice: Choice, runs: Sequence[RunPoint]) -> NoData:
    found = sorted({(run.study, run.site) for run in runs if run.epoch_time_s})
    if not found:
        return no_data(connection, choice, "cross-site", KINDS["cross-site"].needs)
    listed = ", ".join(f"{study} on {site}" for study, site in found)
    return NoData(
        Problem(
            f"cross-site needs runs of one study on two or more sites; measured so far: {listed}",
            hint=f"campaign run sites/OTHER.yaml --study {found[0][0]}, then campaign plot cross-site",
        )
    )
