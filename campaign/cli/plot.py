"""`campaign plot`: figures from the store."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

import campaign
from campaign.cli.common import Context, flags, selection_flags
from campaign.errors import EXIT_BAD_INPUT, BadInput, Problem

if TYPE_CHECKING:
    from analysis.choice import Choice
    from analysis.figures import Plotted
    from campaign.submit.select import Selection

FORMATS = ("png", "svg", "pdf")
EXAMPLES = """\b
Examples:
  campaign plot                                  which figures there are, and what each needs
  campaign plot scaling cross-site
  campaign plot scaling --study strong_scaling --site juwels --format svg,pdf
  campaign plot scaling --series fsdp2 --where "nodes >= 4"
  campaign plot all --out paper/figures

Writes figures/<name>.png and .svg in the project. The same data give the same bytes.
"""


@click.command(epilog=EXAMPLES)
@flags
@selection_flags
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--series", multiple=True, help="Only this series, strategy or part of a series' name; repeatable.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Folder. Default: figures/ in the project."
)
@click.option("--format", "formats", default="png,svg", show_default=True, help="png, svg, pdf; separated by commas.")
@click.option("--title", help="Title instead of the figure's own; with one NAME.")
@click.option("--collect/--no-collect", default=True, help="Bring new records into the store first.")
def plot(
    context: Context,
    selection: Selection,
    names: tuple[str, ...],
    series: tuple[str, ...],
    out: Path | None,
    formats: str,
    title: str | None,
    collect: bool,
) -> None:
    """Draw figures from the store.

    NAME is scaling, cross-site, startup or steps; `all` draws those that have data, `list` (or no NAME) explains them.
    A point of `scaling` stands for all its valid runs: --where and --run choose points, not single repeats.
    """
    import_analysis()
    if names in ((), ("list",)):
        _list(context)
        return
    suffixes = _suffixes(formats)
    wanted = _wanted(names, title)
    folder = out or context.project.figures_dir
    choice = _choice(context, selection, series)
    if collect:
        from campaign.cli.collect import gather_new

        gather_new(context)
    drawn = _draw(context, wanted, choice, folder, suffixes, title, skip_empty="all" in names)
    context.data = {"figures": [plotted.to_json() for plotted in drawn]}
    for plotted in drawn:
        for path in plotted.files:
            context.say(_shown(path))
    if "all" in names and not drawn and not context.errors:
        raise BadInput(Problem("no figure has data yet", hint="`campaign status`, `campaign collect`"))


def import_analysis() -> None:
    """Import our `analysis`, whatever PYTHONPATH or the working directory hold under that name."""
    ours = str(Path(campaign.__file__).resolve().parent.parent)
    sys.path.insert(0, ours)
    try:
        import analysis  # noqa: F401
    finally:
        sys.path.remove(ours)


def _list(context: Context) -> None:
    from analysis.figures import KINDS

    context.data = {
        "available": [{"name": name, "shows": kind.shows, "needs": kind.needs} for name, kind in KINDS.items()]
    }
    for name, kind in KINDS.items():
        context.say(f"{click.style(name, bold=True)}\n  {kind.shows}\n  Needs: {kind.needs}.")


def _suffixes(formats: str) -> list[str]:
    suffixes = list(dict.fromkeys(part.strip().lower() for part in formats.split(",") if part.strip()))
    unknown = [suffix for suffix in suffixes if suffix not in FORMATS]
    if unknown or not suffixes:
        allowed = f"{', '.join(FORMATS)}; several separated by commas"
        raise BadInput(Problem("not a figure format", key="--format", value=formats, allowed=allowed))
    return suffixes


def _wanted(names: Sequence[str], title: str | None) -> list[str]:
    from analysis.figures import KINDS, kind_of

    wanted = list(dict.fromkeys(name for given in names for name in (KINDS if given == "all" else [given])))
    for name in wanted:
        kind_of(name)
    if title is not None and len(wanted) > 1:
        raise BadInput(Problem("one title for several figures", key="--title", value=title, hint="name one figure"))
    return wanted


def _choice(context: Context, selection: Selection, series: tuple[str, ...]) -> Choice:
    from analysis.choice import Choice

    ids = None
    if selection.plan:
        # a run may belong to several plans: only the ledger knows them all
        from campaign.submit.ledger import Ledger
        from campaign.submit.select import Selection, select_runs

        with Ledger.open(context.project.ledger_path) as ledger:
            ids = tuple(select_runs(ledger, Selection(plan=selection.plan)))
    return Choice(
        sites=selection.sites,
        studies=selection.studies,
        series=series,
        runs=selection.runs,
        where=selection.where,
        ids=ids,
        chosen_by=f"--plan {selection.plan}" if selection.plan else "",
    )


def _draw(
    context: Context,
    wanted: Sequence[str],
    choice: Choice,
    folder: Path,
    formats: Sequence[str],
    title: str | None,
    *,
    skip_empty: bool,
) -> list[Plotted]:
    """Draw all that can be drawn; what can't is an error, or with `all` and no data nothing."""
    from analysis.figures import plot as plot_figure
    from analysis.queries import NoData
    from campaign.store.db import open_store

    drawn = []
    with open_store(context.project.store_path, write=False, note=context.note) as connection:
        for name in wanted:
            context.note(f"drawing {name}")
            try:
                drawn.append(plot_figure(name, connection, choice, folder=folder, formats=formats, title=title))
            except NoData as error:
                if skip_empty:
                    context.note(f"{name}: {error.problems[0].message}")
                    continue
                for problem in error.problems:
                    context.fail(problem, exit_code=EXIT_BAD_INPUT)
            except BadInput as error:
                for problem in error.problems:
                    context.fail(problem, exit_code=EXIT_BAD_INPUT)
    return drawn


def _shown(path: Path) -> str:
    """Relative to the working directory when it is below it."""
    absolute = path.absolute()
    here = Path.cwd()
    return os.fspath(absolute.relative_to(here) if absolute.is_relative_to(here) else absolute)
