"""`campaign cancel`: end queued and running jobs, array elements one by one; planned runs are taken out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from campaign.cli.common import Context, flags, require, selection_flags
from campaign.errors import Problem
from campaign.submit.ledger import Ledger
from campaign.words import count as number

if TYPE_CHECKING:
    from campaign.submit.select import Selection

EXAMPLES = """\b
Examples:
  campaign cancel --run 3f2a
  campaign cancel --site juwels --study strong_scaling
  campaign cancel --all
"""


@click.command(epilog=EXAMPLES)
@flags
@selection_flags
@click.option("--all", "everything", is_flag=True, help="Every run that hasn't ended: planned, queued and running.")
@click.option("--force", is_flag=True, help="Call local runs lost whose host can't be reached any more.")
def cancel(context: Context, selection: Selection, everything: bool, force: bool) -> None:
    """Cancel queued and running runs, and drop planned ones.

    Jobs are told to end; planned runs are taken out, also those whose study file is gone. `campaign retry` plans them
    again.
    """
    from campaign.submit.cancel import cancel as cancel_runs
    from campaign.submit.refresh import refresh
    from campaign.submit.select import select_runs

    require(everything or not selection.empty, Problem("which runs?", hint="campaign cancel --all, or --run RUN"))
    with Ledger.open(context.project.ledger_path) as ledger:
        ids = select_runs(ledger, selection)
        for warning in refresh(context.project, ledger, force=True).warnings:
            context.warn(warning)
        report = cancel_runs(context.project, ledger, ids, force=force)
    context.data = {"jobs": report.jobs, "planned": report.planned, "given_up": report.given_up}
    for problem in report.failed:
        context.fail(problem, exit_code=3)
    context.say(f"{number(report.jobs, 'job')} told to end, {number(report.planned, 'planned run')} taken out")
    if report.jobs:
        context.say("their records say how far they came: campaign status")
