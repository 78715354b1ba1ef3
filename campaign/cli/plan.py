"""`campaign plan`: expand, check and price, before anything is queued."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from campaign.cli.common import Context, flags
from campaign.cli.render import table
from campaign.errors import EXIT_BAD_INPUT, Problem

if TYPE_CHECKING:
    from campaign.plan.model import Plan, PlannedRun
    from campaign.submit.ledger import AddReport

EXAMPLES = """\b
Examples:
  campaign plan sites/local.yaml
  campaign plan sites/juwels.yaml sites/vega.yaml --study cern_hython --account myaccount
  campaign plan juwels --study strong_scaling --set nodes=1,2,4 --set walltime=00:20:00
  campaign plan sites/juwels.yaml --show-script      the very script that submit will send
  campaign plan sites/local.yaml --json | jq .data.totals
"""
ROWS = 40
"""Points and reasons that are listed without -v."""


@click.command(epilog=EXAMPLES)
@click.argument("sites", nargs=-1, metavar="SITE...")
@click.option("--study", "studies", multiple=True, metavar="NAME", help="Study; repeatable. Default: as the site says.")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Another value for an axis (nodes=1,2,4), a parameter (lr=1e-2), a resource or walltime; repeatable.",
)
@click.option("--strict", is_flag=True, help="End with exit code 2 when a run can't run.")
@click.option("--show-script", is_flag=True, help="Print the scripts that submit will send to sbatch.")
@flags
def plan(
    context: Context,
    sites: tuple[str, ...],
    studies: tuple[str, ...],
    overrides: tuple[str, ...],
    strict: bool,
    show_script: bool,
) -> None:
    """Expand, check and price the runs of sites and studies.

    SITE is a site file or the name of one; without it, the sites of campaign.yaml. Nothing is queued. The plan is kept
    under its id, and planning the same again gives the same plan and the same runs.
    """
    from campaign.plan.build import build_plan, save_plan
    from campaign.plan.overrides import parse_overrides
    from campaign.submit.ledger import Ledger

    project = context.project
    note = context.note if context.verbose else (lambda _: None)
    made = build_plan(project, sites, studies or None, parse_overrides(overrides), context.account, note=note)
    path = save_plan(project, made)
    with Ledger.open(project.ledger_path) as ledger:
        added = ledger.add_plan(made)
    scripts = _scripts(context, made) if show_script else None
    context.data = _data(context, made, project.shown(path), added, scripts)
    unknown, warnings = _split(made)
    context.warnings += [*unknown, *warnings, *([] if strict else _reasons(made))]
    _tell(context, made, added, strict)
    for text in scripts or ():
        context.say("\n" + text["text"].rstrip())
    if strict:
        for problem in _reasons(made):
            context.fail(problem, exit_code=EXIT_BAD_INPUT)


# -- the answer as data ----------------------------------------------------------------------------------------------


def _data(context: Context, plan: Plan, path: str, added: AddReport, scripts: Any) -> dict[str, Any]:
    unknown, _ = _split(plan)
    data: dict[str, Any] = {
        "plan_id": plan.plan_id,
        "path": path,
        "sites": list(plan.sites),
        "studies": list(plan.studies),
        "totals": totals(plan.runs),
        "ledger": dataclasses.asdict(added),
        "unknown": [problem.to_json() for problem in unknown],
        "runs": [run.to_json() for run in plan.runs] if context.as_json else [],
        "next": _next(plan),
    }
    if scripts is not None:
        data["scripts"] = scripts
    return data


def totals(runs: Sequence[PlannedRun]) -> dict[str, Any]:
    """Counts and prices of the runs that can run, each taken at its whole walltime."""
    able = [run for run in runs if run.can_run]
    units: dict[str, float] = {}
    for run in able:
        if run.price.site_units is not None:
            key = f"{run.site}: {run.price.site_unit}"
            units[key] = units.get(key, 0.0) + run.price.site_units
    return {
        "runs": len(runs),
        "can_run": len(able),
        "cannot_run": len(runs) - len(able),
        "points": len({_point_key(run) for run in runs}),
        "gpu_h": sum(run.price.gpu_h or 0.0 for run in able),
        "node_h": sum(run.price.node_h for run in able),
        "site_units": units,
        "files": sum(run.price.files for run in able),
        "ops_shared": None,
    }


def _scripts(context: Context, plan: Plan) -> list[dict[str, str]]:
    from campaign.submit.script import render

    scripts = []
    for site in plan.sites:
        runs = [run for run in plan.runs if run.site == site and run.can_run]
        texts = render(context.project, site, runs) if runs else []
        if not texts:
            context.note(f"{site}: no script, since nothing goes to Slurm")
        scripts += [{"site": site, "text": text} for text in texts]
    return scripts


def _next(plan: Plan) -> str | None:
    return f"campaign submit --plan {plan.plan_id}" if any(run.can_run for run in plan.runs) else None


def _split(plan: Plan) -> tuple[list[Problem], list[Problem]]:
    """(what nobody knows, other warnings)."""
    from campaign.plan.check import UNKNOWN

    unknown = [problem for problem in plan.warnings if problem.message.endswith(UNKNOWN)]
    return unknown, [problem for problem in plan.warnings if problem not in unknown]


def _reasons(plan: Plan) -> list[Problem]:
    """Why runs can't run: each reason once, with the number of runs."""
    counts: dict[Problem, int] = {}
    for run in plan.runs:
        for problem in run.problems:
            counts[problem] = counts.get(problem, 0) + 1
    return [
        dataclasses.replace(problem, message=f"{_runs(count)} can't run: {problem.message}")
        for problem, count in counts.items()
    ]


def _runs(count: int) -> str:
    return f"{count} run" if count == 1 else f"{count} runs"


# -- the answer for people -------------------------------------------------------------------------------------------


def _tell(context: Context, plan: Plan, added: AddReport, strict: bool) -> None:
    if context.as_json:
        return
    _print_points(context, plan)
    unknown, warnings = _split(plan)
    _print_problems(context, [*warnings, *([] if strict else _reasons(plan))], "warning", "yellow")
    if unknown:
        click.echo("Unknown, not checked (null in the site file):", err=True)
        for problem in unknown:
            click.echo(f"  {problem.file}:{problem.line}  {problem.key}", err=True)
    for line in _summary(plan, added):
        context.say(line)


def _print_problems(context: Context, problems: Sequence[Problem], label: str, colour: str) -> None:
    shown = problems if context.verbose else problems[:ROWS]
    for problem in shown:
        if not context.quiet:
            click.echo(f"{click.style(label, fg=colour)}: {problem}", err=True)
    if len(shown) < len(problems):
        click.echo(f"... {len(problems) - len(shown)} more: -v lists them", err=True)


def _summary(plan: Plan, added: AddReport) -> Iterator[str]:
    total = totals(plan.runs)
    parts = [f"plan {plan.plan_id}: {_runs(total['runs'])} of {total['points']} points"]
    if total["cannot_run"]:
        parts.append(f"{total['cannot_run']} can't run")
    if added.known:
        parts.append(f"{added.known} known from before, {added.done} of them done")
    if added.superseded:
        parts.append(f"{added.superseded} of an older plan dropped")
    yield "; ".join(parts)
    prices = [f"{total['gpu_h']:.4g} GPU-h", f"{total['node_h']:.4g} node-h"]
    prices += [
        f"{units:.4g} {key.split(': ')[1]} on {key.split(': ')[0]}" for key, units in total["site_units"].items()
    ]
    yield (
        f"at most {', '.join(prices)}, {total['files']} files on shared storage (every run at its whole walltime; "
        "metadata operations not measured)"
    )
    going = _next(plan)
    yield f"next: {going}" if going else "nothing can be submitted: mend the above and plan again"


def _point_key(run: PlannedRun) -> tuple[Any, ...]:
    return run.site, run.study, json.dumps(run.axes, sort_keys=True), run.nodes, run.ranks_per_node


def _print_points(context: Context, plan: Plan) -> None:
    """One table for each study on each site, a line for each point."""
    groups: dict[tuple[str, str], dict[tuple[Any, ...], list[PlannedRun]]] = {}
    for run in plan.runs:
        groups.setdefault((run.site, run.study), {}).setdefault(_point_key(run), []).append(run)
    left = sum(len(points) for points in groups.values()) if context.verbose else ROWS
    for points in groups.values():
        shown = list(points.values())[:left]
        left -= len(shown)
        if shown:
            context.say(_heading(shown[0][0]))
            context.say(table(HEADINGS, [_cells(runs) for runs in shown], right=(1, 2, 3, 4, 5, 7, 8)) + "\n")
        if len(shown) < len(points):
            context.say(f"... {len(points) - len(shown)} more points: -v lists them\n")


HEADINGS = ("axes", "nodes", "ranks", "cores", "GPUs", "batch", "partition", "runs", "GPU-h", "")


def _heading(run: PlannedRun) -> str:
    from campaign.slurm.durations import format_duration

    account = f", account {run.account}" if run.account else ""
    data = f", data {run.data['name']}" if run.data else ""
    title = click.style(f"{run.study} on {run.site}", bold=True)
    return f"{title}: {format_duration(run.walltime_s)} each at most{account}{data}; per rank: cores, GPUs, batch"


def _cells(runs: Sequence[PlannedRun]) -> list[str]:
    run = runs[0]
    axes = " ".join(f"{name}={value}" for name, value in run.axes.items() if name not in ("nodes", "ranks_per_node"))
    gpu_h = None if run.price.gpu_h is None else run.price.gpu_h * len(runs)
    marks = ["gate first"] if any(member.gate for member in runs) else []
    marks += ["oversubscribed"] if run.oversubscribed else []
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
        "?" if gpu_h is None else f"{gpu_h:.4g}",
        ", ".join(marks),
    ]
