"""`campaign run`: the whole way from site files to an answer."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from campaign.cli.common import Context, cap_flags, flags
from campaign.errors import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_NOT_NOW, BadInput, Problem
from campaign.submit.ledger import Ledger
from campaign.words import count as number

if TYPE_CHECKING:
    from campaign.plan.model import Plan
    from campaign.project import Project
    from campaign.submit.limits import Caps
    from campaign.submit.overview import Overview
    from campaign.submit.report import SubmitReport

EXAMPLES = """\b
Examples:
  campaign run sites/local.yaml
  campaign run sites/juwels.yaml sites/vega.yaml --study cern_hython --account myaccount
  campaign run sites/local.yaml --set lr=1e-2

Ctrl-C stops the watching, not the jobs: the same command picks them up again.
"""


@click.command(epilog=EXAMPLES)
@flags
@click.argument("sites", nargs=-1, required=True, metavar="SITE...")
@click.option("--study", "studies", multiple=True, help="Study to run; repeatable. Default: those the site lists.")
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a parameter or axis; repeatable."
)
@click.option("--plots/--no-plots", default=True, help="Draw the figures at the end.")
@cap_flags
def run(context: Context, sites: tuple[str, ...], studies: tuple[str, ...], overrides: tuple[str, ...],
        plots: bool, caps: Caps) -> None:  # fmt: skip
    """Plan, submit, wait and collect, with progress."""
    started = time.monotonic()
    project = context.project
    with Ledger.open(project.ledger_path) as ledger:
        plan, report = _to_the_end(context, ledger, sites, studies, overrides, caps)
        rows = ledger.run_rows([planned.run_id for planned in plan.runs if planned.can_run])
    ended = {row["run_id"]: row["state"] for row in rows}
    for reason in dict.fromkeys(row["reason"] for row in rows if row["state"] == "done" and row["reason"]):
        context.warn(reason)
    for line in report.advice:
        context.note(line)
    for held in report.held:
        if held.failed:
            context.warn(held.message)
        else:
            context.note(held.message)
    for problem in [*report.changed, *report.refused]:
        context.fail(problem, exit_code=EXIT_BAD_INPUT)
    for problem in [*report.limited, *report.uncertain]:
        context.fail(problem, exit_code=EXIT_NOT_NOW)
    _tell_bad(context, ended)
    context.data = {"plan_id": plan.plan_id, "runs": ended, "seconds": time.monotonic() - started}
    _answer(context, project, plan, plots)


def _to_the_end(
    context: Context, ledger: Ledger, sites: Sequence[str], studies: Sequence[str], overrides: Sequence[str], caps: Caps
) -> tuple[Plan, SubmitReport]:
    """Plan and follow; once more when runs of `walltime: auto` have their pilots then."""
    from campaign.cli.planning import make_plan
    from campaign.cli.progress import Progress
    from campaign.plan.store import run_texts
    from campaign.plan.walltime import WAITS
    from campaign.submit.follow import follow

    project = context.project
    last: tuple[int, SubmitReport] | None = None
    while True:
        progress = Progress(context)
        plan, path = make_plan(context, ledger, sites, studies, overrides, progress)
        progress.end()
        ids = [planned.run_id for planned in plan.runs if planned.can_run]
        if not ids:
            raise BadInput({problem.message: problem for run in plan.runs for problem in run.problems}.values())
        waiting = sum(any(problem.message == WAITS for problem in planned.problems) for planned in plan.runs)
        if last is not None and waiting >= last[0]:  # the pilots have failed, which the report of before says
            return plan, last[1]
        _tell_plan(context, plan)
        added = ledger.add_plan(plan, texts=run_texts(path))
        if added.done:
            context.note(f"{added.done} of {len(ids)} runs are already measured")
        with _progress(context, len(ids)) as show:
            report = follow(project, ledger, ids, note=context.note, show=show, warn=context.warn, caps=caps)
        if not waiting:
            return plan, report
        last = waiting, report


def _tell_plan(context: Context, plan: Plan) -> None:
    for warning in plan.warnings:
        context.warn(warning)
    refused = [planned for planned in plan.runs if not planned.can_run]
    for planned in refused[:5]:
        context.warn(planned.problems[0])
    if len(refused) > 5:
        context.warn(f"{number(len(refused) - 5, 'more run', 'more runs')} can't run here: `campaign plan` lists them")
    names = ", ".join(dict.fromkeys(planned.study for planned in plan.runs))
    context.note(
        f"plan {plan.plan_id}: {number(len(plan.runs) - len(refused), 'run')} of {names} on {', '.join(plan.sites)}"
    )


def _tell_bad(context: Context, ended: dict[str, str]) -> None:
    bad = {run_id: state for run_id, state in ended.items() if state not in ("done", "planned")}
    for run_id, state in list(bad.items())[:5]:
        context.fail(Problem(f"run {run_id} ended as {state}", hint=f"campaign show {run_id}"))
    if len(bad) > 5:
        context.fail(
            Problem(
                f"{number(len(bad) - 5, 'more run', 'more runs')} ended badly",
                hint='campaign status -v --where "valid = false"',
            )
        )
    if any(state == "planned" for state in ended.values()):
        context.exit_code = max(context.exit_code, EXIT_FAILED)


class _progress:
    """Progress on stderr: a bar on a terminal, else a line whenever a count changes."""

    def __init__(self, context: Context, total: int) -> None:
        self.context = context
        self.total = total
        self.bar: Any = None
        self.task: Any = None
        self.last = ""

    def __enter__(self) -> Callable[[Overview], None]:
        if not self.context.quiet and not self.context.as_json and sys.stderr.isatty():
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            self.bar = Progress(
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                console=self.context.console(stderr=True), transient=True,
            )  # fmt: skip
            self.bar.start()
            self.task = self.bar.add_task("runs", total=self.total)
        return self.show

    def __exit__(self, *exc: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def show(self, view: Overview) -> None:
        """The counts as they are now."""
        counts: dict[str, int] = {}
        for group in view.groups:
            for name, count in group.counts.items():
                counts[name] = counts.get(name, 0) + count
        text = ", ".join(f"{count} {name}" for name, count in counts.items())
        if self.bar is not None:
            ended = view.count("done", "failed", "timeout", "interrupted", "cancelled", "lost")
            self.bar.update(self.task, completed=ended, description=text)
        elif text != self.last:
            self.context.note(text)
        self.last = text


def _answer(context: Context, project: Project, plan: Plan, plots: bool) -> None:
    """Collect, then the table and the figures; what can't be drawn is a warning, the runs stay done."""
    from campaign.cli.plot import import_analysis
    from campaign.store.collect import collect

    collected = collect(project, project.store_path, note=context.note)
    for reject in collected.rejects:
        context.warn(Problem(f"record set aside: {reject.reason}", str(reject.path)))
    try:
        import_analysis()
        from analysis.answers import draw_all, scaling_text
    except ImportError as error:
        context.warn(Problem(f"no table and no figures: {error}", hint="pip install 'campaign[plots]'"))
        return
    sites, studies = tuple(plan.sites), tuple(dict.fromkeys(planned.study for planned in plan.runs))
    console = context.console()
    table = scaling_text(
        project.store_path, sites=sites, studies=studies, width=console.width, colour=sys.stdout.isatty()
    )
    if table:
        context.say(table)
    if plots:
        drawn = draw_all(project.store_path, project.figures_dir, sites=sites, studies=studies, warn=context.warn)
        files = [str(path) for plotted in drawn for path in plotted.files]
        context.data["figures"] = files
        context.say("\n".join(files))
