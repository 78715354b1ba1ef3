"""`campaign retry`: plan a new attempt of runs that ended without success."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

from campaign.cli.common import Context, flags, require, selection_flags
from campaign.errors import BadInput, Problem
from campaign.slurm.durations import format_duration
from campaign.submit.ledger import Ledger
from campaign.words import count as number

if TYPE_CHECKING:
    from campaign.submit.select import Selection

EXAMPLES = """\b
Examples:
  campaign retry --run 3f2a && campaign submit
  campaign retry --where "state = 'timeout'"
  campaign retry --run 3f2a --walltime 04:00:00
  campaign retry --all
"""


@click.command(epilog=EXAMPLES)
@flags
@selection_flags
@click.option(
    "--all", "everything", is_flag=True, help="Every run that ended as failed, timeout, interrupted, cancelled or lost."
)
@click.option("--walltime", metavar="TIME", help="Of the next attempt, in any form that Slurm takes, e.g. 02:00:00.")
def retry(context: Context, selection: Selection, everything: bool, walltime: str | None) -> None:
    """Plan a new attempt of runs that ended without success.

    That is failed, timeout, interrupted, cancelled or lost; the others of the selection are left alone. The next
    `campaign submit` queues them.
    """
    from campaign.submit.select import select_runs
    from campaign.submit.states import plan_again

    require(everything or not selection.empty, Problem("which runs?", hint="campaign retry --all, or --run RUN"))
    walltime_s = None if walltime is None else _seconds(walltime)
    with Ledger.open(context.project.ledger_path) as ledger:
        ids = select_runs(ledger, selection)
        if walltime_s is not None:
            _within_limits(context, ledger, ids, walltime_s)
        count = plan_again(ledger, ids, walltimes=None if walltime_s is None else dict.fromkeys(ids, walltime_s))
    context.data = {"planned": count}
    context.say(f"{number(count, 'run')} planned again; next: campaign submit" if count else
                "no run of this selection has ended without success")  # fmt: skip


def _seconds(walltime: str) -> int:
    from campaign.slurm.durations import parse_duration

    try:
        found = parse_duration(walltime)
    except ValueError as error:
        raise BadInput(Problem(str(error), key="--walltime", value=walltime,
                               allowed="minutes, HH:MM:SS, D-HH:MM:SS")) from error  # fmt: skip
    require(found > 0, Problem("not a walltime", key="--walltime", value=walltime, allowed="a minute or more"))
    return math.ceil(found)


def _within_limits(context: Context, ledger: Ledger, ids: list[str], walltime_s: int) -> None:
    """Refuse a walltime that a partition won't take: sbatch would refuse it later."""
    from campaign.submit.retry import limit_s

    for run in ledger.planned_runs(ids).values():
        longest = limit_s(context.project.load_site(run.site), run)
        require(walltime_s <= longest, Problem(f"partition {run.partition} of {run.site} takes no run for so long",
                                               key="--walltime", value=format_duration(walltime_s),
                                               allowed=f"at most {format_duration(longest)}"))  # fmt: skip
