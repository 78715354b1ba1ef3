"""What `campaign try` says, to people and in JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from campaign.cli.common import Context
from campaign.cli.render import table
from campaign.words import count as number

if TYPE_CHECKING:
    from campaign.plan.model import PlannedRun
    from campaign.submit.tryreport import TryReport


def tell_run(context: Context, run: PlannedRun) -> None:
    """Say what is about to be tried, on stderr."""
    point = ", ".join(f"{name}={value}" for name, value in run.axes.items())
    where = f"partition {run.partition}" + (f", reservation {run.reservation}" if run.reservation else "")
    context.note(
        f"trying {run.study} on {run.site}: {number(run.nodes, 'node')} x {number(run.ranks_per_node, 'rank')}"
        f"{f' ({point})' if point else ''}, {where}, at most {run.walltime_s} s"
    )


def tell_report(context: Context, run: PlannedRun, report: TryReport) -> None:
    """Say how far it came, how long that took, and what failed."""
    if report.phases:
        rows = []
        before = 0.0
        for phase in report.phases:
            ranks = "" if phase.ranks is None else f"{phase.ranks} of {run.world_size} ranks"
            rows.append([phase.name, f"{phase.t_s:.3f}", f"{phase.t_s - before:.3f}", ranks])
            before = phase.t_s
        context.say(table(["reached", "after s", "took s", "by"], rows, right=(1, 2)))
    if report.median_step_s is not None:
        measured = number(max(report.steps - 1, 1), "step")
        context.say(f"median step {report.median_step_s:.4g} s (rank 0, {measured}, the first left out)")
    if report.lines:
        context.say(click.style("last lines:", bold=True))
        context.say("\n".join(report.lines))
    if report.ran:
        context.say(report.verdict)


def answer(run: PlannedRun, state: str, job_id: str | None, *, here: bool) -> dict[str, Any]:
    """`data` of `campaign try --json` while there is no report."""
    return {
        "study": run.study,
        "site": run.site,
        "run_id": run.run_id,
        "job_id": job_id,
        "here": here,
        "axes": run.axes,
        "nodes": run.nodes,
        "ranks_per_node": run.ranks_per_node,
        "partition": run.partition,
        "reservation": run.reservation,
        "walltime_s": run.walltime_s,
        "steps": run.record["max_steps"],
        "state": state,
        "report": None,
        "records": None,
    }
