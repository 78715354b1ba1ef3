"""`campaign submit`: queue planned runs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from campaign.cli.common import Context, flags, selection_flags
from campaign.errors import EXIT_BAD_INPUT, EXIT_NOT_NOW
from campaign.submit.ledger import Ledger
from campaign.words import count as number

if TYPE_CHECKING:
    from campaign.submit.select import Explored, Selection
    from campaign.submit.submit import SubmitReport

EXAMPLES = """\b
Examples:
  campaign submit                         all that is planned, but for older plans made with --set
  campaign submit --all                   those too
  campaign submit --plan 3f2a --site juwels
  campaign submit --where "world_size <= 16"
  campaign submit --dry-run               what would be queued
"""


@click.command(epilog=EXAMPLES)
@flags
@selection_flags
@click.option("--all", "everything", is_flag=True, help="Also runs of older plans made with --set.")
@click.option("--dry-run", is_flag=True, help="Print the scripts that would be sent; queue nothing.")
def submit(context: Context, selection: Selection, everything: bool, dry_run: bool) -> None:
    """Queue planned runs, exactly as planned.

    Without --plan, --run or --where it takes the runs of plans made without --set, those of the newest plan whatever
    it was made with, and those planned again by `campaign retry`. Without --site, runs of sites that are not here stay
    planned.
    """
    from campaign.submit.refresh import refresh
    from campaign.submit.select import leave_out_explored, select_runs
    from campaign.submit.submit import preview
    from campaign.submit.submit import submit as submit_runs

    project = context.project
    with Ledger.open(project.ledger_path) as ledger:
        ids, explored = select_runs(ledger, selection), None
        if not (everything or selection.names_runs):
            ids, explored = leave_out_explored(ledger, ids)
        if dry_run:
            scripts = preview(project, ledger, ids)
            context.data = {"scripts": scripts}
            context.say("\n".join(script["text"] for script in scripts) or "nothing to submit")
            return
        for warning in refresh(project, ledger, force=True).warnings:
            context.warn(warning)
        report = submit_runs(project, ledger, ids, note=context.note, named=selection.sites)
    if explored is not None:
        context.note(explored.message)
    tell(context, report, explored)


def tell(context: Context, report: SubmitReport, explored: Explored | None) -> None:
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
        "elsewhere": [
            {"site": other.site, "count": other.count, "reason": other.problem.message} for other in report.elsewhere
        ],
        "explored": {"runs": explored.runs, "plans": explored.plans} if explored else {"runs": 0, "plans": []},
    }  # fmt: skip
    for line in report.advice:
        context.note(line)
    for held in report.held:
        if held.failed:
            context.warn(held.message)
        else:
            context.note(held.message)
    for other in report.elsewhere:
        if report.queued:
            context.note(other.message)
        else:
            context.fail(dataclasses.replace(other.problem, message=other.message), exit_code=EXIT_NOT_NOW)
    for problem in [*report.changed, *report.refused]:
        context.fail(problem, exit_code=EXIT_BAD_INPUT)
    for problem in [*report.limited, *report.uncertain]:
        context.fail(problem, exit_code=EXIT_NOT_NOW)
    if report.queued:
        context.say(
            f"{number(report.queued, 'run')} queued in {number(report.batches, 'batch', 'batches')}; "
            "follow with: campaign status --watch"
        )
    elif not (report.held or context.errors or explored):
        context.say("nothing is planned in this selection; `campaign status` shows where runs stand")
