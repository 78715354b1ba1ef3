"""`campaign rebuild`: a lost or damaged ledger, made anew."""

from __future__ import annotations

import click

from campaign.cli.common import Context, flags
from campaign.submit.ledger import Ledger
from campaign.words import count as number

EXAMPLES = """\b
Examples:
  campaign rebuild             after .campaign/ledger.sqlite was lost or damaged
  campaign rebuild --force     although the ledger works: it is put aside, not deleted

Without the plans (.campaign/plans) plan first, with the files as they were: run ids come from them.
"""


@click.command(epilog=EXAMPLES)
@flags
@click.option("--force", is_flag=True, help="Put a ledger aside that works.")
def rebuild(context: Context, force: bool) -> None:
    """Make a lost ledger anew from plans, run folders and Slurm.

    Nothing is queued. Runs that have a record, a claim or a job get them back; an attempt is never run a second time.
    """
    from campaign.submit.overview import overview
    from campaign.submit.rebuild import rebuild as make
    from campaign.submit.refresh import refresh
    from campaign.submit.turn import turn

    project = context.project
    with turn(project.ledger_path, "rebuild", note=context.note):
        report = make(project, force=force, note=context.note)
        with Ledger.open(project.ledger_path) as ledger:
            for warning in refresh(project, ledger, force=True).warnings:
                context.warn(warning)
            view = overview(ledger)
    for problem in report.strange:
        context.warn(problem)
    states = {name: count for group in view.groups for name, count in group.counts.items()}
    states = {name: view.count(name) for name in states}
    context.data = {
        "plans": report.plans,
        "runs": report.runs,
        "jobs": report.jobs,
        "states": states,
        "old_ledger": None if report.moved is None else str(report.moved),
    }
    found = ", ".join(f"{count} {name}" for name, count in states.items())
    what = f"{number(report.runs, 'run')} of {number(report.plans, 'plan')}, {number(report.jobs, 'attempt')} at them"
    context.say(f"{what}: {found or 'none'}")
    if view.count("planned"):
        context.note("planned runs that had been cancelled are planned again; campaign cancel  takes them out")
    if report.moved is not None:
        context.note(f"the old ledger is now {project.shown(report.moved)}")
