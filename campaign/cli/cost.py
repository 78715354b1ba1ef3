"""`campaign cost`: what runs have cost, planned against held against charged."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from campaign.cli.common import Context, flags
from campaign.cli.plantext import budget_line
from campaign.cli.render import table
from campaign.submit.ledger import Ledger
from campaign.words import amount

if TYPE_CHECKING:
    from campaign.submit.charges import Cost

EXAMPLES = """\b
Examples:
  campaign cost                    planned, held and charged hours by site and study
  campaign cost -v                 CPU-hours and the cluster's own billing units, too
  campaign cost --no-refresh       from what is known, without asking accounting
  campaign cost --json | jq '.data.studies[] | {site, study, charged_gpu_h}'
"""
HEADINGS = ("site", "study", "attempts", "node-h planned", "held", "charged", "GPU-h planned", "held", "charged",
            "of plan", "")  # fmt: skip
MORE = ("CPU-h charged", "billing-h")


@click.command(epilog=EXAMPLES)
@flags
@click.option("--refresh/--no-refresh", default=True, help="Ask accounting for ended jobs it hasn't answered for yet.")
def cost(context: Context, refresh: bool) -> None:
    """Show what runs have cost: planned, held and charged.

    Node-hours and GPU-hours of attempts that have ended. Planned: at their whole walltime; held: from start to end;
    charged: what the site's accounting (sacct) says that the jobs held, start-up and packed runs' gaps included.
    """
    from campaign.submit.budget import budget
    from campaign.submit.charges import costs, update_charges

    project = context.project
    with Ledger.open(project.ledger_path) as ledger:
        if refresh:
            for warning in update_charges(project, ledger, note=context.note).warnings:
                context.warn(warning)
        found = costs(ledger)
        state = budget(project.config, ledger)
    context.data = {
        "studies": [dataclasses.asdict(one) for one in found],
        "budget": {**dataclasses.asdict(state), "planned_gpu_h": 0.0, "share": state.share(0.0)},
    }
    if not found:
        context.say("no run has ended yet")
        return
    headings = (*HEADINGS[:-1], *(MORE if context.verbose else ()), "")
    rows = [_cells(one, bool(context.verbose)) for one in found]
    context.say(table(headings, rows, right=range(2, len(headings) - 1)))
    if line := budget_line(context.data["budget"]):
        context.say(line)


def _cells(one: Cost, more: bool) -> list[str]:
    used = one.charged_node_h if one.charged_node_h is not None else one.held_node_h
    share = used / one.planned_node_h if used is not None and one.planned_node_h else None
    left = one.elements - one.charged_elements
    return [
        one.site,
        one.study,
        str(one.attempts),
        _hours(one.planned_node_h),
        _hours(one.held_node_h),
        _hours(one.charged_node_h),
        _hours(one.planned_gpu_h),
        _hours(one.held_gpu_h),
        _hours(one.charged_gpu_h),
        "?" if share is None else f"{share:.0%}",
        *((_hours(one.charged_cpu_h), _hours(one.charged_billing_h)) if more else ()),
        f"{left} jobs without a charge" if left and one.charged_elements else "",
    ]


def _hours(value: Any) -> str:
    return "?" if value is None else amount(value)
