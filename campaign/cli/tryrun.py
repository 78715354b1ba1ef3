"""`campaign try`: the smallest point of a study for a few steps, and what happened."""

from __future__ import annotations

import dataclasses
import shlex
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from campaign.cli.common import Context, flags, require
from campaign.cli.trytext import answer, tell_report, tell_run
from campaign.errors import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_NOT_NOW, BadInput, Problem
from campaign.slurm.states import FINAL
from campaign.submit.ledger import Ledger

if TYPE_CHECKING:
    from campaign.plan.model import Plan, PlannedRun
    from campaign.project import Project
    from campaign.submit.report import SubmitReport
    from campaign.submit.tryout import Drawer, Request
    from campaign.submit.tryreport import TryReport

EXAMPLES = """\b
Examples:
  campaign try strong_scaling                       the smallest point, 20 steps, on the project's only site
  campaign try strong_scaling juwels --steps 5 --account myaccount
  campaign try strong_scaling juwels --set nodes=2 --partition develbooster --walltime 00:05:00
  campaign try strong_scaling jupiter --reservation hackathon
  salloc -N 2 -p develbooster -t 30 --gres=gpu:4    and then, in its shell:
  campaign try strong_scaling juwels --set nodes=2 --here

A try is no measurement: it is in no status, store or report, its hours are not in `campaign cost`, and what it wrote is
removed (what a failed one wrote: by the next try). Ctrl-C stops the watching, not the job: the same command goes on
with it. With --here it ends the try.
"""


@click.command("try", epilog=EXAMPLES)
@flags
@click.argument("study")
@click.argument("site", required=False)
@click.option("--steps", type=click.IntRange(min=1), default=20, show_default=True,
              help="End each rank after so many steps of its Recorder.")  # fmt: skip
@click.option("--partition", help="Partition. Default: one for development, else by size.")
@click.option("--reservation", help="Reservation. Default: the study's or the site's.")
@click.option("--walltime", help="Time limit. Default: 10 minutes, or the partition's limit.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE",
              help="Another value for an axis, a parameter or a resource; repeatable.")  # fmt: skip
@click.option("--here", is_flag=True, help="Inside the Slurm allocation (salloc) that this command runs in.")
@click.option("--keep", is_flag=True, help="Leave the records where they are.")
@click.option("--wait/--no-wait", default=True, help="Wait for the end (default), or only queue it.")
def tryrun(
    context: Context, study: str, site: str | None, steps: int, partition: str | None, reservation: str | None,
    walltime: str | None, overrides: tuple[str, ...], here: bool, keep: bool, wait: bool,
) -> None:  # fmt: skip
    """Run a study's smallest point for a few steps and say what happened.

    STUDY and SITE are names or files. SITE may be left out where the project has one site only. Exit code 0 when it
    ran, 1 when it failed.
    """
    from campaign.plan.overrides import parse_overrides
    from campaign.submit.tryout import Drawer, Request

    project = context.project
    request = Request(
        study=project.load_study(study).name,
        site=project.load_site(site or _only_site(project)).name,
        steps=steps,
        overrides=parse_overrides(overrides),
        partition=partition,
        reservation=reservation,
        walltime=walltime,
        account=context.account,
    )
    _check_options(request, here=here, wait=wait)
    drawer = Drawer(project)
    asked = _Asked(context, drawer, request, here=here, keep=keep, wait=wait)
    if here:
        _in_allocation(asked)
    else:
        with Ledger.open(drawer.ledger_path) as ledger:
            _queued(asked, ledger)


@dataclass(frozen=True)
class _Asked:
    """The command as it was given."""

    context: Context
    drawer: Drawer
    request: Request
    here: bool
    keep: bool
    wait: bool

    @property
    def again(self) -> str:
        """The command line that asks for the same."""
        request = self.request
        words = ["campaign", "try", request.study, request.site]
        words += [] if request.steps == 20 else ["--steps", str(request.steps)]
        named = {"partition": request.partition, "reservation": request.reservation, "walltime": request.walltime,
                 "account": request.account}  # fmt: skip
        words += [word for name, value in named.items() if value is not None for word in (f"--{name}", value)]
        words += [word for key, value in request.overrides.items() for word in ("--set", f"{key}={value}")]
        words += [flag for flag, given in (("--here", self.here), ("--keep", self.keep)) if given]
        return shlex.join(words)

    @property
    def onwards(self) -> str:
        """What to type when the try has run."""
        request = self.request
        sets = [word for key, value in request.overrides.items() for word in ("--set", f"{key}={value}")]
        return shlex.join(["campaign", "plan", request.site, "--study", request.study, *sets])


def _only_site(project: Project) -> str:
    """The site that is meant when none is named."""
    names = list(project.config.sites) or project.site_names()
    if len(names) == 1:
        return names[0]
    raise BadInput(Problem("which site?", key="SITE", allowed=", ".join(names) or "the project has none",
                           hint=f"campaign try STUDY {names[0]}" if names else "campaign init"))  # fmt: skip


def _check_options(request: Request, *, here: bool, wait: bool) -> None:
    for name in ("walltime", "partition", "reservation", "revision", "repeats", "gate", "pack"):
        hint = f"--{name}" if name in ("walltime", "partition", "reservation") else "leave it away"
        require(name not in request.overrides, Problem(f"a try has its own {name}", key=f"--set {name}", hint=hint))
    if not here:
        return
    require(wait, Problem("with --here the try is this command's own: it can't go on without it", key="--no-wait",
                          hint="leave --no-wait away"))  # fmt: skip
    for name in ("partition", "reservation"):
        require(getattr(request, name) is None,
                Problem(f"with --here the {name} is the allocation's", key=f"--{name}"))  # fmt: skip


# -- through the queue -----------------------------------------------------------------------------------------------


def _queued(asked: _Asked, ledger: Ledger) -> None:
    """Queue it, or find the one that goes on; wait; tell."""
    from campaign.submit import tryout

    context, drawer, request = asked.context, asked.drawer, asked.request
    row = tryout.unreported(ledger, request)
    if row is not None:
        ended = row["state"] in FINAL
        context.note(
            "a try of the same has ended meanwhile" if ended else f"a try of the same is {row['state']}: going on"
        )
        run = ledger.planned_runs([row["run_id"]])[row["run_id"]]
    else:
        run = _new_run(asked, ledger)
    try:
        _submit(asked, ledger, run)
    except KeyboardInterrupt:
        _told_interrupted(asked, ledger, run)
        return
    row = ledger.run_rows([run.run_id])[0]
    job = tryout.newest_job(ledger, run.run_id)
    if row["state"] == "planned":  # it never reached the queue, and the errors say why
        _undo(asked, ledger, run)
        return
    job_id = None if job is None else job["job_id"]
    if not asked.wait or context.errors:
        _told_queued(asked, run, row["state"], job_id)
        return
    from campaign.submit.tryreport import read_report

    report = read_report(
        tryout.run_dir(drawer, run), _folder(job), steps=run.record["max_steps"],
        state=row["state"], reason=row["reason"],
    )  # fmt: skip
    tryout.forget(ledger, run.run_id)
    _finish(asked, run, report, job_id, job["tag"] if job else None, row["plan_id"])


def _new_run(asked: _Asked, ledger: Ledger) -> PlannedRun:
    from campaign.plan.store import save_plan
    from campaign.submit import tryout
    from campaign.submit.guard import guard_cluster, known_clusters

    drawer = asked.drawer
    plan = tryout.plan_try(drawer, asked.request)
    _check_cap(asked.context.project, plan)
    site = drawer.load_site(asked.request.site)
    guard_cluster(site, known_clusters(drawer, ledger, site))
    tryout.sweep(drawer, site)
    drawer.make_place(site)
    save_plan(drawer, plan)
    ledger.add_plan(plan)
    tell_run(asked.context, plan.runs[0])
    return plan.runs[0]


def _check_cap(project: Project, plan: Plan) -> None:
    """Raise BadInput when the project's own cap on GPU-hours leaves no room."""
    from campaign.submit.budget import budget, over_cap

    if project.config.caps.gpu_hours is None or not project.ledger_path.exists():
        return
    with Ledger.open(project.ledger_path) as ledger:
        problem = over_cap(project.config, budget(project.config, ledger), plan.runs[0].price.gpu_h or 0.0)
    if problem is not None:
        raise BadInput(dataclasses.replace(problem, hint="a shorter --walltime, or another cap"))


def _submit(asked: _Asked, ledger: Ledger, run: PlannedRun) -> None:
    """Queue it; follow it to its end when that is wanted."""
    from campaign.submit.follow import follow
    from campaign.submit.refresh import refresh
    from campaign.submit.submit import submit

    context = asked.context
    if asked.wait:
        shown: list[str] = []

        def show(view: Any) -> None:
            states = ", ".join(name for group in view.groups for name in group.counts)
            if shown[-1:] != [states]:
                shown.append(states)
                context.note(states)

        report = follow(asked.drawer, ledger, [run.run_id], note=context.note, show=show, warn=context.warn)
    else:
        for warning in refresh(asked.drawer, ledger, force=True).warnings:
            context.warn(warning)
        report = submit(asked.drawer, ledger, [run.run_id], note=context.note)
    _told_refused(context, report)


def _told_refused(context: Context, report: SubmitReport) -> None:
    for problem in [*report.changed, *report.refused]:
        context.fail(problem, exit_code=EXIT_BAD_INPUT)
    for problem in [*report.limited, *report.uncertain]:
        context.fail(problem, exit_code=EXIT_NOT_NOW)


# -- in an allocation ------------------------------------------------------------------------------------------------


def _in_allocation(asked: _Asked) -> None:
    """Run it on nodes that the user holds; tell."""
    from campaign.submit import here, tryout
    from campaign.submit.tryreport import read_report

    context, drawer = asked.context, asked.drawer
    site = drawer.load_site(asked.request.site)
    held = here.allocation(site)
    request = dataclasses.replace(asked.request, account=asked.request.account or held.account)
    left_s = held.left_s()
    limits = {} if left_s is None else {"limit_s": left_s - here.LEAST_S / 2}
    plan = tryout.plan_try(drawer, request, partition=held.partition, **limits)
    run = plan.runs[0]
    here.check_size(site, held, run)
    tryout.sweep(drawer, site)
    drawer.make_place(site)
    tell_run(context, run)
    prepared = here.prepare(drawer, site, run, held)
    interrupted = False
    try:
        here.run_here(prepared, context.note)
    except KeyboardInterrupt:
        interrupted = True
    report = read_report(
        tryout.run_dir(drawer, run), prepared.batch.submit_dir, steps=request.steps,
        state="failed", reason="the head ended, or never began",
    )  # fmt: skip
    _finish(asked, run, report, held.job_id, prepared.batch.tag, None)
    if interrupted:
        context.exit_code = EXIT_INTERRUPTED


# -- the answer ------------------------------------------------------------------------------------------------------


def _told_queued(asked: _Asked, run: PlannedRun, state: str, job_id: str | None) -> None:
    asked.context.data = answer(run, state, job_id, here=asked.here) | {"next": asked.again}
    if not asked.context.errors:
        asked.context.say(f"the try is {state}" + (f" as job {job_id}" if job_id else ""))
        asked.context.say(f"next: {asked.again}   (goes on with it and says how it ended)")


def _told_interrupted(asked: _Asked, ledger: Ledger, run: PlannedRun) -> None:
    from campaign.submit import tryout

    job = tryout.newest_job(ledger, run.run_id)
    job_id = None if job is None else job["job_id"]
    row = ledger.run_rows([run.run_id])[0]
    asked.context.data = answer(run, row["state"], job_id, here=asked.here) | {"next": asked.again}
    if row["state"] == "planned":
        _undo(asked, ledger, run)
        problem = Problem("interrupted before the try was queued; nothing of it is left", hint=asked.again)
    else:
        ends = "" if asked.drawer.load_site(run.site).local or not job_id else f"; scancel {job_id}  ends it"
        goes = "interrupted; the try itself goes on" + (f" as job {job_id}" if job_id else "")
        problem = Problem(goes, hint=f"{asked.again}  goes on watching it{ends}")
    asked.context.fail(problem, exit_code=EXIT_INTERRUPTED)


def _undo(asked: _Asked, ledger: Ledger, run: PlannedRun) -> None:
    """Take back a try that never reached the queue."""
    from campaign.submit import tryout

    job = tryout.newest_job(ledger, run.run_id)
    plan_id = ledger.run_rows([run.run_id])[0]["plan_id"]
    tryout.forget(ledger, run.run_id)
    tryout.remove(asked.drawer, run, job["tag"] if job else None, plan_id)


def _folder(job: Any) -> Any:
    from pathlib import Path

    return None if job is None else Path(job["submit_dir"])


def _finish(
    asked: _Asked, run: PlannedRun, report: TryReport, job_id: str | None, tag: str | None, plan: str | None
) -> None:
    """Say how it went; clean up."""
    from campaign.submit import tryout

    context = asked.context
    folder = tryout.run_dir(asked.drawer, run)
    kept = (asked.keep or not report.ran) and folder.is_dir()
    again = asked.again
    context.data = answer(run, report.state, job_id, here=asked.here) | {
        "report": dataclasses.asdict(report) | {"phase": report.phase},
        "records": str(folder) if kept else None,
        "next": asked.onwards if report.ran else again,
    }
    tell_report(context, run, report)
    if kept:
        how = "" if asked.keep else "  (removed by the next try)"
        context.say(f"records: {folder}{how}")
    if report.ran:
        context.say(f"next: {asked.onwards}")
    else:
        context.fail(Problem(report.verdict, hint=f"mend it, then: {again}"), exit_code=EXIT_FAILED)
    if not kept:
        tryout.remove(asked.drawer, run, tag, plan)
    elif not asked.keep:
        tryout.leave_until_next(asked.drawer, run, tag)
    if plan:
        with suppress(OSError):
            (asked.drawer.plans_dir / f"{plan}.json").unlink()
