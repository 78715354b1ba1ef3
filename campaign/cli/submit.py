"""`campaign submit`: queue planned runs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from campaign.cli.common import Context, cap_flags, flags, selection_flags
from campaign.errors import EXIT_BAD_INPUT, EXIT_NOT_NOW, Problem
from campaign.submit.ledger import Ledger, age_s
from campaign.words import count as number

if TYPE_CHECKING:
    from campaign.submit.follow import Round
    from campaign.submit.limits import Caps
    from campaign.submit.select import Selection

EXAMPLES = """\b
Examples:
  campaign submit                         all that is planned, but for older plans made with --set
  campaign submit --all                   those too
  campaign submit --plan 3f2a --site juwels
  campaign submit --where "world_size <= 16"
  campaign submit --max-queued 20         no more than 20 jobs at once
  campaign submit --dry-run               what would be queued
"""


@click.command(epilog=EXAMPLES)
@flags
@selection_flags
@click.option("--all", "everything", is_flag=True, help="Also runs of older plans made with --set.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print the scripts that would be sent, and which runs would be tried again; queue nothing.",
)
@cap_flags
def submit(context: Context, selection: Selection, everything: bool, dry_run: bool, caps: Caps) -> None:
    """Queue planned runs, exactly as planned.

    Runs that the infrastructure broke are tried again, too. Base points and small runs go first. What limits leave no
    room for stays planned (exit code 3): the same command later, `campaign run`, or what `campaign timer` prints, tops
    up.

    Without --plan, --run or --where it takes the runs of plans made without --set, those of the newest plan whatever
    it was made with, and those planned again by `campaign retry`. Without --site, runs of sites that are not here stay
    planned.
    """
    from campaign.submit.follow import Round, one_round
    from campaign.submit.retry import decisions
    from campaign.submit.select import leave_out_explored, select_runs
    from campaign.submit.submit import preview

    project = context.project
    everything = everything or selection.names_runs
    with Ledger.open(project.ledger_path) as ledger:
        ids = select_runs(ledger, selection)
        if dry_run:
            shown = ids if everything else leave_out_explored(ledger, ids)[0]
            scripts, report = preview(project, ledger, shown, caps)
            again = [(row, choice) for row, choice in decisions(project, ledger, ids) if choice.again]
            context.data = {"scripts": scripts, "retried": [row["run_id"] for row, _ in again]}
            if scripts or not again:
                context.say("\n".join(script["text"] for script in scripts) or "nothing to submit")
            for row, choice in again:
                context.say(f"# {row['run_id']}: attempt {row['attempts'] + 1} would be planned and sent: {choice.why}")
            tell_round(context, Round(report))
            return
        silent: list[Problem] = []
        done = one_round(
            project, ledger, ids, command="submit", caps=caps, named=selection.sites, everything=everything,
            note=context.note, warn=silent.append,
        )  # fmt: skip
        waiting = None if done.report.uncertain else unanswered(ledger, ids)
    context.data = round_data(done)
    tell_round(context, done)
    told = bool(context.errors) or done.report.queued > 0  # a refusal says more than a cluster that said nothing
    for problem in silent:
        if told:
            context.warn(problem)
        else:
            context.fail(problem, exit_code=EXIT_NOT_NOW)
    if waiting is not None:
        context.fail(waiting, exit_code=EXIT_NOT_NOW)
    if not (done.report.queued or done.report.held or context.errors or done.explored):
        context.say("nothing is planned in this selection; `campaign status` shows where runs stand")


def unanswered(ledger: Ledger, ids: list[str]) -> Problem | None:
    """What is said of runs of which nobody knows yet whether Slurm has them; None when there are none."""
    rows = [row for row in ledger.run_rows(ids) if row["state"] == "submitting"]
    if not rows:
        return None
    age = max(age_s(row["changed"]) for row in rows)
    runs = number(len(rows), "run")
    message = f"sbatch gave no clear answer about {runs} {age:.0f} s ago, and Slurm doesn't show them so far"
    hint = "campaign submit  again: what Slurm hasn't shown for the site's adopt_grace_s is queued once more"
    return Problem(message, hint=hint)


def round_data(done: Round) -> dict[str, Any]:
    """What a round did, for JSON."""
    report, explored = done.report, done.explored
    return {
        "queued": report.queued,
        "batches": report.batches,
        "jobs": report.jobs,
        "retried": done.retried,
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


def tell_round(context: Context, done: Round) -> None:
    """Say what was queued and what was not, and set the exit code."""
    report = done.report
    if done.explored is not None:
        context.note(done.explored.message)
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
