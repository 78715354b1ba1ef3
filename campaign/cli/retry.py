"""`campaign retry`: plan a new attempt of runs that ended without success."""

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
  campaign retry --run 3f2a && campaign submit
  campaign retry --where "state = 'timeout'"
  campaign retry --all
"""


@click.command(epilog=EXAMPLES)
@flags
@selection_flags
@click.option(
    "--all", "everything", is_flag=True, help="Every run that ended as failed, timeout, interrupted, cancelled or lost."
)
def retry(context: Context, selection: Selection, everything: bool) -> None:
    """Plan a new attempt of runs that ended without success.

    That is failed, timeout, interrupted, cancelled or lost; the others of the selection are left alone. The next
    `campaign submit` queues them.
    """
    from campaign.submit.select import select_runs
    from campaign.submit.states import plan_again

    require(everything or not selection.empty, Problem("which runs?", hint="campaign retry --all, or --run RUN"))
    with Ledger.open(context.project.ledger_path) as ledger:
        count = plan_again(ledger, select_runs(ledger, selection))
    context.data = {"planned": count}
    context.say(f"{number(count, 'run')} planned again; next: campaign submit" if count else
                "no run of this selection has ended without success")  # fmt: skip
