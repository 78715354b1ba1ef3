"""A plan as people read it: a table of points, warnings, what it costs, what it changes."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from campaign.cli.common import Context
from campaign.cli.render import table
from campaign.errors import Problem
from campaign.plan.diff import Diff
from campaign.plan.model import Plan, PlannedRun
from campaign.words import amount
from campaign.words import count as number

ROWS = 40
"""Points and reasons that are listed without -v."""
HEADINGS = ("axes", "nodes", "ranks", "cores", "GPUs", "batch", "partition", "runs", "GPU-h", "")


def print_points(context: Context, plan: Plan, states: Mapping[str, str]) -> None:
    """One table for each study on each site, a line for each point. `states`: of runs that the ledger knows."""
    groups: dict[tuple[str, str], dict[tuple[Any, ...], list[PlannedRun]]] = {}
    for run in plan.runs:
        groups.setdefault((run.site, run.study), {}).setdefault(point_key(run), []).append(run)
    left = sum(len(points) for points in groups.values()) if context.verbose else ROWS
    for points in groups.values():
        shown = list(points.values())[:left]
        left -= len(shown)
        if shown:
            runs = [run for members in points.values() for run in members]
            context.say(_heading(runs))
            rows = [_cells(members, states) for members in shown]
            context.say(table(HEADINGS, rows, right=(1, 2, 3, 4, 5, 7, 8)) + "\n")
            for line in _reasoning(runs):
                context.say(line)
        if len(shown) < len(points):
            context.say(f"... {len(points) - len(shown)} more points: -v lists them\n")


def point_key(run: PlannedRun) -> tuple[Any, ...]:
    """What the repeats of a point share."""
    return run.site, run.study, json.dumps(run.axes, sort_keys=True), run.nodes, run.ranks_per_node


def _heading(runs: Sequence[PlannedRun]) -> str:
    from campaign.slurm.durations import format_duration

    run = runs[0]
    account = f", account {run.account}" if run.account else ""
    data = f", data {run.data['name']}" if run.data else ""
    walltimes = sorted({member.walltime_s for member in runs if member.can_run} or {run.walltime_s})
    span = " to ".join(format_duration(seconds) for seconds in dict.fromkeys((walltimes[0], walltimes[-1])))
    title = click.style(f"{run.study} on {run.site}", bold=True)
    return f"{title}: {span} each at most{account}{data}; per rank: cores, GPUs, batch"


def _cells(runs: Sequence[PlannedRun], states: Mapping[str, str]) -> list[str]:
    run = runs[0]
    axes = " ".join(f"{name}={value}" for name, value in run.axes.items() if name not in ("nodes", "ranks_per_node"))
    gpu_h = None if run.price.gpu_h is None else run.price.gpu_h * len(runs)
    marks = ["gate first"] if any(member.gate for member in runs) else []
    marks += ["oversubscribed"] if run.oversubscribed else []
    if run.allocation_nodes is not None:
        marks.append(f"one after another on the nodes of a {number(run.allocation_nodes, 'node')} allocation")
    known = [states[member.run_id] for member in runs if states.get(member.run_id, "planned") != "planned"]
    marks += [f"{known.count(name)} {name}" for name in dict.fromkeys(known)]
    marks += [] if run.can_run else [click.style("can't run", fg="red")]
    return [
        axes.replace("\n", "\\n") or "-",
        str(run.nodes),
        str(run.world_size),
        str(run.cpus_per_rank),
        str(run.gpus_per_rank),
        "-" if run.local_batch is None else str(run.local_batch),
        run.partition or "-",
        str(len(runs)),
        "?" if gpu_h is None else amount(gpu_h),
        ", ".join(marks),
    ]


def _reasoning(runs: Sequence[PlannedRun]) -> Iterator[str]:
    """How `walltime: auto` came to its values, a line for each size."""
    from campaign.slurm.durations import format_duration

    told = dict.fromkeys((run.nodes, run.walltime_s, run.walltime_why) for run in runs if run.walltime_why)
    for nodes, walltime_s, why in told:
        yield f"walltime on {number(nodes, 'node')}: {format_duration(walltime_s)}: {why}"
    if told:
        yield ""


def print_problems(context: Context, problems: Sequence[Problem], label: str, colour: str) -> None:
    """Problems on stderr, each on its lines; the first `ROWS` without -v."""
    shown = problems if context.verbose else problems[:ROWS]
    for problem in shown:
        if not context.quiet:
            click.echo(f"{click.style(label, fg=colour)}: {problem}", err=True)
    if len(shown) < len(problems):
        click.echo(f"... {len(problems) - len(shown)} more: -v lists them", err=True)


def standing(runs: Sequence[PlannedRun], states: Mapping[str, str]) -> str:
    """Where runs of which none is left to submit stand: `8 done, 2 on their way, 1 failed`."""
    from campaign.slurm.states import ACTIVE

    words = ["on the way" if (state := states[run.run_id]) in ACTIVE else state for run in runs if run.can_run]
    return ", ".join(f"{count:,} {word}" for word, count in Counter(words).most_common())


def prices(total: Mapping[str, Any], unpriced: Sequence[str] = ()) -> str:
    """The price line: what the runs that are still to be made cost at most. `unpriced`: sites of unknown units."""
    said = {"gpu-h": total["gpu_h"], "node-h": total["node_h"]}
    parts = [f"{amount(total['gpu_h'])} GPU-h", f"{amount(total['node_h'])} node-h"]
    for key, units in total["site_units"].items():
        site, unit = key.split(": ")
        if not math.isclose(units, said.get(unit, math.inf)):
            parts.append(f"{amount(units)} {unit} on {site}")
    parts += [f"{site}'s own unit: unknown" for site in unpriced]
    return (
        f"at most {', '.join(parts)}, {total['files']:,} files on shared storage for {number(total['to_run'], 'run')} "
        "(each at its whole walltime; metadata operations not measured)"
    )


def budget_line(budget: Mapping[str, Any], more: str = "") -> str | None:
    """Where the project stands against its cap; None when there is none and nothing was spent.

    `more`: what is in the share beside what is spent and committed.
    """
    spent, committed = budget["spent_gpu_h"], budget["committed_gpu_h"]
    if budget["cap_gpu_h"] is None:
        return (
            f"so far: {amount(spent)} GPU-h spent, {amount(committed)} queued or running"
            if spent or committed
            else None
        )
    return (
        f"budget: {amount(spent)} GPU-h spent, {amount(committed)} queued or running; {more}at most "
        f"{budget['share']:.0%} of the cap of {amount(budget['cap_gpu_h'])} GPU-h"
    )


def diff_lines(found: Diff) -> Iterator[str]:
    """What changed since the older plan."""
    from campaign.slurm.durations import format_duration

    yield click.style(f"since plan {found.old_plan} of {found.old_created[:16].replace('T', ' ')} UTC:", bold=True)
    if found.empty:
        yield "  nothing has changed"
    for path in found.files:
        yield f"  {path} has changed"
    for group in found.counts:
        parts = [f"{group.new} new"] if group.new else []
        if group.same:
            parts.append(f"{group.same} as before" + (f", {group.valid} of them done and valid" if group.valid else ""))
        if group.gone:
            fates = [f"{group.kept} done, which stay in the store"] if group.kept else []
            fates += [f"{group.active} queued or running: campaign cancel"] if group.active else []
            parts.append(f"{group.gone} no longer planned" + (f" ({'; '.join(fates)})" if fates else ""))
        yield f"  {group.study} on {group.site}: {'; '.join(parts)}"
    for change in found.changes:
        old, new = (
            format_duration(value) if change.field == "walltime_s" and value else value
            for value in (change.old, change.new)
        )
        yield f"  {change.study} on {change.site}: {change.field} {old} -> {new} in {number(change.runs, 'run')}"
