"""What `plan` and `run` begin with: the plan of what the command line names, built and written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from campaign.cli.common import Context
    from campaign.cli.progress import Progress
    from campaign.plan.model import Plan
    from campaign.submit.ledger import Ledger


def make_plan(
    context: Context,
    ledger: Ledger,
    sites: Sequence[str],
    studies: Sequence[str],
    overrides: Sequence[str],
    progress: Progress,
    note: Callable[[str], None] = lambda _: None,
) -> tuple[Plan, Path]:
    """(plan, its file). The ledger gives the pilots of `walltime: auto`, and isn't told of the plan yet."""
    from campaign.plan.build import build_plan, save_plan
    from campaign.plan.overrides import parse_overrides
    from campaign.submit.pilots import pilots

    plan = build_plan(
        context.project, sites, studies or None, parse_overrides(overrides), context.account,
        pilots=pilots(ledger), note=note, progress=progress,
    )  # fmt: skip
    return plan, save_plan(context.project, plan, progress)
