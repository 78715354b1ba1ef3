"""`campaign plan`: expand, check and price, before anything is queued."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from campaign.cli.common import Context, flags
from campaign.cli.plantext import budget_line, diff_lines, point_key, prices, print_points, print_problems, standing
from campaign.errors import EXIT_BAD_INPUT, Problem
from campaign.words import count as number

if TYPE_CHECKING:
    from campaign.plan.model import Plan, PlannedRun
    from campaign.submit.ledger import AddReport, Ledger

EXAMPLES = """\b
Examples:
  campaign plan sites/local.yaml
  campaign plan sites/juwels.yaml sites/vega.yaml --study cern_hython --account myaccount
  campaign plan juwels --study strong_scaling --set nodes=1,2,4 --set walltime=00:20:00
  campaign plan sites/juwels.yaml --show-script      the very script that submit will send
  campaign plan juwels --diff                        what changed since the last plan, and what stays valid
  campaign plan sites/local.yaml --json | jq .data.totals
"""


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
@click.option("--diff", "show_diff", is_flag=True, help="Say what changed since the last plan, and what stays valid.")
@click.option("--against", metavar="PLAN", help="The plan that --diff compares with; implies --diff.")
@flags
def plan(
    context: Context,
    sites: tuple[str, ...],
    studies: tuple[str, ...],
    overrides: tuple[str, ...],
    strict: bool,
    show_script: bool,
    show_diff: bool,
    against: str | None,
) -> None:
    """Expand, check and price the runs of sites and studies.

    SITE is a site file or the name of one; without it, the sites of campaign.yaml. Nothing is queued. The plan is kept
    under its id, and planning the same again gives the same plan and the same runs.
    """
    from campaign.cli.planning import make_plan
    from campaign.cli.progress import Progress
    from campaign.plan.store import run_texts
    from campaign.submit.ledger import Ledger

    project = context.project
    note = context.note if context.verbose else (lambda _: None)
    with Ledger.open(project.ledger_path) as ledger:
        progress = Progress(context)
        made, path = make_plan(context, ledger, sites, studies, overrides, progress, note)
        older = _older(context, ledger, made, against) if show_diff or against else None
        added = ledger.add_plan(made, progress, run_texts(path))
        progress.end()
        told = _Told(context, ledger, made, added, older)
    scripts = _scripts(context, made) if show_script else None
    context.data = _data(context, told, project.shown(path), scripts)
    context.warnings += [*told.unknown, *told.warnings, *([] if strict else _reasons(made))]
    _tell(context, told, strict)
    for text in scripts or ():
        context.say("\n" + text["text"].rstrip())
    if strict:
        for problem in _reasons(made):
            context.fail(problem, exit_code=EXIT_BAD_INPUT)


class _Told:
    """A plan and what the ledger says of it."""

    def __init__(self, context: Context, ledger: Ledger, plan: Plan, added: AddReport, older: Plan | None) -> None:
        from campaign.plan.check import UNKNOWN
        from campaign.plan.diff import diff
        from campaign.submit.budget import budget, over_cap, still_to_run
        from campaign.submit.origin import other_code

        config = context.project.config
        self.plan = plan
        self.added = added
        known = (plan, older) if older is not None else (plan,)
        # runs that the ledger has only just heard of are planned, and needn't be asked for
        new = older is None and not added.known
        self.states = {} if new else ledger.states({run.run_id for one in known for run in one.runs})
        self.to_run = still_to_run(plan.runs, self.states)
        self.totals = totals(plan.runs, self.to_run)
        self.unpriced = _unpriced(context, self.to_run)
        state = budget(config, ledger)
        wanted = sum(run.price.gpu_h or 0.0 for run in self.to_run)
        self.budget = {**dataclasses.asdict(state), "planned_gpu_h": wanted, "share": state.share(wanted)}
        done = [run.run_id for run in plan.runs if self.states.get(run.run_id) == "done"]
        notices = (over_cap(config, state, wanted), other_code(ledger, context.project.root, done))
        problems = [*plan.warnings, *(notice for notice in notices if notice is not None)]
        self.unknown = [problem for problem in problems if problem.message.endswith(UNKNOWN)]
        """What nobody knows."""
        self.warnings = [problem for problem in problems if not problem.message.endswith(UNKNOWN)]
        self.diff = None if older is None else diff(older, plan, self.states)


def _older(context: Context, ledger: Ledger, plan: Plan, against: str | None) -> Plan | None:
    """The plan to compare with: the one asked for, else the newest one of the same sites and studies."""
    from campaign.plan.store import load_plan

    if against is not None:
        return load_plan(context.project, against)
    found = ledger.plan_before(plan)
    if found is None:
        context.warn("there is no older plan of these sites and studies to compare with")
        return None
    return load_plan(context.project, found)


# -- the answer as data ----------------------------------------------------------------------------------------------


def _data(context: Context, told: _Told, path: str, scripts: Any) -> dict[str, Any]:
    plan = told.plan
    data: dict[str, Any] = {
        "plan_id": plan.plan_id,
        "path": path,
        "sites": list(plan.sites),
        "studies": list(plan.studies),
        "totals": told.totals,
        "budget": told.budget,
        "ledger": dataclasses.asdict(told.added),
        "unknown": [problem.to_json() for problem in told.unknown],
        "runs": [run.to_json() for run in plan.runs] if context.as_json else [],
        "diff": None if told.diff is None else told.diff.to_json(),
        "next": _next(told),
    }
    if scripts is not None:
        data["scripts"] = scripts
    return data


def totals(runs: Sequence[PlannedRun], to_run: Sequence[PlannedRun]) -> dict[str, Any]:
    """Counts of all runs; prices of `to_run`, those that `submit` may still queue, each at its whole walltime."""
    units: dict[str, float] = {}
    for run in to_run:
        if run.price.site_units is not None:
            key = f"{run.site}: {run.price.site_unit}"
            units[key] = units.get(key, 0.0) + run.price.site_units
    able = sum(run.can_run for run in runs)
    return {
        "runs": len(runs),
        "can_run": able,
        "cannot_run": len(runs) - able,
        "to_run": len(to_run),
        "points": len({point_key(run) for run in runs}),
        "gpu_h": sum(run.price.gpu_h or 0.0 for run in to_run),
        "node_h": sum(run.price.node_h for run in to_run),
        "site_units": units,
        "files": sum(run.price.files for run in to_run),
        "ops_shared": None,
    }


def _unpriced(context: Context, to_run: Sequence[PlannedRun]) -> list[str]:
    """Sites of which nobody knows what they charge in; a machine of one's own charges nothing."""
    sites = dict.fromkeys(run.site for run in to_run if run.price.site_units is None)
    return [name for name in sites if not context.project.load_site(name).local]


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


def _next(told: _Told) -> str | None:
    from campaign.slurm.states import FINAL

    if told.to_run:
        return f"campaign submit --plan {told.plan.plan_id}"
    states = {told.states.get(run.run_id) for run in told.plan.runs if run.can_run}
    if states & (FINAL - {"done"}):
        return f"campaign retry --plan {told.plan.plan_id}"
    return "campaign status" if states else None


def _reasons(plan: Plan) -> list[Problem]:
    """Why runs can't run: each reason once, with the number of runs."""
    counts: dict[Problem, int] = {}
    for run in plan.runs:
        for problem in run.problems:
            counts[problem] = counts.get(problem, 0) + 1
    return [
        dataclasses.replace(problem, message=f"{number(count, 'run')} can't run: {problem.message}")
        for problem, count in counts.items()
    ]


# -- the answer for people -------------------------------------------------------------------------------------------


def _tell(context: Context, told: _Told, strict: bool) -> None:
    from campaign.plan.check import UNKNOWN

    if context.as_json:
        return
    print_points(context, told.plan, told.states)
    print_problems(context, [*told.warnings, *([] if strict else _reasons(told.plan))], "warning", "yellow")
    if told.unknown:
        click.echo("Unknown, not checked (null in the site file, or not to be seen from here):", err=True)
        for problem in told.unknown:
            what = problem.message.removesuffix(UNKNOWN).rstrip().removesuffix(" is").removesuffix(" are")
            click.echo(f"  {problem.file}:{problem.line}  {what}", err=True)
    for line in (*(diff_lines(told.diff) if told.diff is not None else ()), *_summary(told)):
        context.say(line)


def _summary(told: _Told) -> Iterator[str]:
    plan, added = told.plan, told.added
    total = told.totals
    parts = [f"plan {plan.plan_id}: {number(total['runs'], 'run')} of {number(total['points'], 'point')}"]
    if total["cannot_run"]:
        parts.append(f"{total['cannot_run']} can't run")
    if added.known:
        parts.append(f"{added.known} known from before, {added.done} of them done")
    if added.superseded:
        parts.append(f"{added.superseded} of an older plan dropped")
    yield "; ".join(parts)
    if told.to_run:
        yield prices(total, told.unpriced)
    elif total["can_run"]:
        yield f"nothing left to run: {standing(plan.runs, told.states)}"
    if line := budget_line(told.budget, "with this plan "):
        yield line
    going = _next(told)
    yield f"next: {going}" if going else "nothing can be submitted: mend the above and plan again"
