"""`campaign export`: mirror results to other tools."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from campaign.cli.common import Context, flags, selection_flags
from campaign.errors import BadInput, Problem
from campaign.words import count as number

if TYPE_CHECKING:
    from campaign.store.mirror import Mirror, MirrorReport
    from campaign.submit.select import Selection

RUNS_AT_ONCE = 100
"""Read from the store at a time."""
EXAMPLES = """\b
Examples:
  campaign export mlflow --uri http://localhost:5000
  campaign export mlflow --uri sqlite:///mlflow.db --study strong_scaling
  campaign export mlflow --steps --run 3f2a            every step of the ranks that kept theirs, too
  mlflow ui --backend-store-uri sqlite:///mlflow.db    ... and look

In campaign.yaml:  mlflow: {tracking_uri: "http://localhost:5000", experiment: my-study}
"""


@click.group()
def export() -> None:
    """Mirror results to other tools."""


@export.command(epilog=EXAMPLES)
@flags
@selection_flags
@click.option("--uri", help="Tracking server or database. Default: campaign.yaml, then $MLFLOW_TRACKING_URI.")
@click.option("--experiment", help="Name of the experiment. Default: campaign.yaml, then the project's name.")
@click.option("--steps", is_flag=True, help="Also each step that was kept (thousands of numbers a run).")
@click.option("--figures/--no-figures", default=True, help="Draw each study's figures and attach them to its runs.")
@click.option("--collect/--no-collect", default=True, help="Bring new records into the store first.")
def mlflow(
    context: Context,
    selection: Selection,
    uri: str | None,
    experiment: str | None,
    steps: bool,
    figures: bool,
    collect: bool,
) -> None:
    """Mirror runs to MLflow: one MLflow run for each run.

    Parameters, metrics by epoch, observations, start-up phases, tags with the provenance, the record and figures of the
    study as artefacts. The same command again sends what is new or has changed; interrupted, it goes on. Runs without a
    record are left out. DuckDB stays the truth: nothing is read back.
    """
    from campaign.cli.collect import gather_new
    from campaign.store.mirror import Mirror, MirrorReport, check_uri
    from campaign.submit.ledger import Ledger
    from campaign.submit.select import select_runs

    project = context.project
    chosen = project.config.mlflow
    target = uri or chosen.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
    if not target:
        raise BadInput(
            Problem(
                "where to? No tracking server is named", key="mlflow.tracking_uri", hint="--uri sqlite:///mlflow.db"
            )
        )
    target = check_uri(target, project.root)
    named = experiment or chosen.experiment or project.config.name or project.root.name
    if collect:
        gather_new(context)
    with Ledger.open(project.ledger_path) as ledger:
        ids = select_runs(ledger, selection)
    report = MirrorReport()
    mirror = Mirror(target, named, project.root)
    try:
        _send(context, mirror, ids, report, steps=steps, figures=figures)
    finally:
        context.data = {
            "uri": target, "experiment": named, "experiment_id": mirror.experiment_id, "created": report.created,
            "updated": report.updated, "replaced": report.replaced, "unchanged": report.unchanged,
            "metrics": report.metrics,
        }  # fmt: skip
    context.say(_summary(report, target, named))


def _send(
    context: Context, mirror: Mirror, ids: list[str], report: MirrorReport, *, steps: bool, figures: bool
) -> None:
    from campaign.cli.progress import Progress
    from campaign.store.db import open_store
    from campaign.store.mirrored import mirrored

    progress = Progress(context)
    store, note, sent = context.project.store_path, context.note, 0
    drawn: dict[str, list[Path]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for at in range(0, len(ids), RUNS_AT_ONCE):
            # read first: the store is not held open while a server is waited for
            with open_store(store, write=False, note=note) as connection:
                runs = mirrored(connection, ids[at : at + RUNS_AT_ONCE], steps=steps)
            if figures:
                drawn |= _figures(context, {run.study for run in runs} - drawn.keys(), Path(folder))
            for run in runs:
                progress("sending to MLflow", sent, len(ids), "runs")
                run.figures = drawn.get(run.study, [])
                mirror.send(run, report)
                sent += 1
    progress.end()
    if sent < len(ids):
        context.note(f"{number(len(ids) - sent, 'run')} without a record left out")


def _figures(context: Context, studies: set[str], folder: Path) -> dict[str, list[Path]]:
    """PNGs of each study's figures that have data; none where matplotlib is missing."""
    from campaign.cli.plot import import_analysis
    from campaign.store.db import open_store

    import_analysis()
    from analysis.choice import Choice
    from analysis.figures import KINDS, plot
    from analysis.queries import NoData

    drawn: dict[str, list[Path]] = {study: [] for study in studies}
    with open_store(context.project.store_path, write=False, note=context.note) as connection:
        for study in sorted(studies):
            place = folder / study
            place.mkdir()
            for name in KINDS:
                try:
                    made = plot(name, connection, Choice(studies=(study,)), folder=place, formats=("png",), title=None)
                except NoData:
                    continue
                except BadInput as error:
                    context.warn(Problem(f"no figures attached: {error.problems[0].message}",
                                         hint=error.problems[0].hint))  # fmt: skip
                    return drawn
                drawn[study] += made.files
    return drawn


def _summary(report: MirrorReport, uri: str, experiment: str) -> str:
    parts = [f"{len(report.created)} new"]
    parts += [f"{len(report.updated)} sent again"] if report.updated else []
    parts += [f"{len(report.replaced)} of them in place of an earlier attempt"] if report.replaced else []
    parts += [f"{report.unchanged} unchanged"] if report.unchanged else []
    return f"{experiment} at {uri}: {', '.join(parts)}; {number(report.metrics, 'metric')} sent"
