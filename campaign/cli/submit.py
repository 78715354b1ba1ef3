"""`campaign submit`: queue planned runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from campaign.cli.common import Context, flags, selection_flags
from campaign.errors import EXIT_BAD_INPUT, EXIT_NOT_NOW, Problem
from campaign.submit.ledger import Ledger
from campaign.words import count as number

if TYPE_CHECKING:
    from campaign.submit.select import Selection
    from campaign.submit.submit import SubmitReport

EXAMPLES = """\b
Examples:
  campaign submit                         all that is planned
  campaign submit --plan 3f2a --site juwels
  campaign submit --where "world_size <= 16"
  campaign submit --dry-run               what would be queued
"""


@click.command(epilog=EXAMPLES)
@flags
@selection_flags
@click.option("--dry-run", is_flag=True, help="Print the scripts that would be sent; queue nothing.")
def submit(context: Context, selection: Selection, dry_run: bool) -> None:
    """Queue planned runs, exactly as planned."""
    from campaign.submit.refresh import refresh
    from campaign.submit.select import select_runs
    from campaign.submit.submit import preview
    from campaign.submit.submit import submit as submit_runs

    project = context.project
    with Ledger.open(project.ledger_path) as ledger:
        ids = select_runs(ledger, selection)
        if dry_run:
            scripts = preview(project, ledger, ids)
            context.data = {"scripts": scripts}
            context.say("\n".join(script["text"] for script in scripts) or "nothing to submit")
            return
        for warning in refresh(project, ledger, force=True).warnings:
            context.warn(warning)
        report = submit_runs(project, ledger, ids, note=context.note)
    tell(context, report)


def tell(context: Context, report: SubmitReport) -> None:
    """Say what was queued and what was not, and set the exit code."""
    context.data = {
        "queued": report.queued,
        "batches": report.batches,
        "jobs": report.jobs,
        "held": [
            {"site": held.site, "study": held.study, "count": held.count, "gate_run": held.gate_run,
             "gate_state": held.gate_state}
            for held in report.held
        ],
    }  # fmt: skip
    for held in report.held:
        context.warn(Problem(held.message))
    for problem in [*report.changed, *report.refused]:
        context.fail(problem, exit_code=EXIT_BAD_INPUT)
    for problem in [*report.limited, *report.uncertain]:
        context.fail(problem, exit_code=max(context.exit_code, EXIT_NOT_NOW))
    if report.queued:
        context.say(
            f"{number(report.queued, 'run')} queued in {number(report.batches, 'batch', 'batches')}; "
            "follow with: campaign status --watch"
        )
    elif not (report.held or context.errors):
        context.say("nothing is planned in this selection; `campaign status` shows where runs stand")
