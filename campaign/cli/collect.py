"""`campaign collect`: bring records into the store."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from campaign.cli.common import Context, flags, selection_flags
from campaign.errors import BadInput, CampaignError, Problem

if TYPE_CHECKING:
    from campaign.store.collect import CollectReport, Progress
    from campaign.submit.select import Selection

wait_option = click.option(
    "--wait", "wait_s", type=click.FloatRange(min=0), default=10.0, show_default=True, metavar="SECONDS",
    help="How long to wait for a store that another process has open.",
)  # fmt: skip

EXAMPLES = """\b
Examples:
  campaign collect                       new records of all runs
  campaign collect --study weak_scaling  of one study only
  campaign collect --rebuild             the store anew, from ledger and records
  campaign sql "FROM rejects"            what was set aside, and why

A run whose head died leaves a partial record: it is taken too (`complete` is false in the view `records`) until the
final one appears. Broken records are set aside and make the exit code 1; the rest is taken.
"""


@click.command(epilog=EXAMPLES)
@flags
@selection_flags
@click.option(
    "--rebuild", is_flag=True, help="Make a new store from ledger and records and put it in the old one's place."
)
@wait_option
@click.option("--force", is_flag=True, help="With --rebuild: also when records of the old store are gone or damaged.")
def collect(context: Context, selection: Selection, rebuild: bool, wait_s: float, force: bool) -> None:
    """Bring records into the store."""
    if rebuild and not selection.empty:
        raise BadInput(Problem("--rebuild makes the whole store anew: it can't be given a selection",
                               hint="campaign collect --rebuild"))  # fmt: skip
    refresh_states(context)
    report = gather(context, selection, rebuild=rebuild, wait_s=wait_s, force=force)
    context.data = report.to_json()
    for reject in report.rejects:
        hint = "move the folder away once you know why, or measure again: campaign retry"
        context.fail(Problem(f"record set aside: {reject.reason}", reject.path, hint=hint))
    context.say(_summary(report))


def _summary(report: CollectReport) -> str:
    taken = f"{report.final} record{'' if report.final == 1 else 's'}"
    if report.partial:
        taken += f" and {report.partial} partial"
    if report.replaced:
        taken += f" ({report.replaced} in place of older partial ones)"
    aside = f", {len(report.rejects)} set aside" if report.rejects else ""
    what = "rebuilt with" if report.rebuilt else "collected"
    return f"{report.store}: {what} {taken}, {report.rows:,} rows{aside}; {report.runs} runs in the ledger"


def refresh_states(context: Context) -> None:
    """Ask the schedulers about jobs that may still exist, so that a dead head's runs get their state; never fails."""
    from campaign.submit.ledger import Ledger

    path = context.project.ledger_path
    if not path.exists():
        return
    try:
        with Ledger.open(path, write=False) as ledger:
            active = ledger.query(
                "SELECT 1 FROM jobs WHERE state IN ('submitting', 'queued', 'running', 'unknown') LIMIT 1"
            )
            if active:
                from campaign.submit.refresh import refresh

                for warning in refresh(context.project, ledger).warnings:
                    context.warn(warning)
    except CampaignError as error:
        for problem in error.problems:
            context.warn(problem)


def gather(
    context: Context,
    selection: Selection | None = None,
    *,
    rebuild: bool = False,
    wait_s: float = 10.0,
    force: bool = False,
) -> CollectReport:
    """Collect with progress on stderr; what couldn't be listed becomes a warning. Rejects are the caller's to tell."""
    from campaign.store.collect import collect as collect_records

    project = context.project
    chosen = None
    if selection is not None and not selection.empty:
        from campaign.submit.ledger import Ledger
        from campaign.submit.select import select_runs

        with Ledger.open(project.ledger_path, write=False) as ledger:
            chosen = select_runs(ledger, selection)
    with _progress(context) as progress:
        report = collect_records(
            project,
            project.store_path,
            selection=chosen,
            rebuild=rebuild,
            force=force,
            progress=progress,
            note=context.note,
            wait_s=wait_s,
        )
    for folder, reason in sorted(report.unreadable.items()):
        context.warn(Problem(f"the folder can't be listed: {reason}", folder))
    return report


def gather_new(context: Context) -> None:
    """Bring new records of all runs into the store, for a command that reads it next; rejects become warnings."""
    report = gather(context)
    for reject in report.rejects:
        context.warn(Problem(f"record set aside: {reject.reason}", str(reject.path)))
    if report.records:
        context.note(f"{report.records} new records collected")


@contextmanager
def _progress(context: Context) -> Iterator[Callable[[Progress], None]]:
    """A bar on a terminal, a line for each batch elsewhere; nothing when one batch is all."""
    if context.quiet or not sys.stderr.isatty():
        yield lambda progress: None if progress.done == progress.total else context.note(str(progress))
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("records"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=context.console(stderr=True), transient=True) as bar:
        task = bar.add_task("records", total=None, visible=False)
        yield lambda progress: bar.update(
            task, completed=progress.done, total=progress.total, visible=progress.done < progress.total
        )
