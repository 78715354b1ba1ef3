"""Cancel: planned runs leave the plan, jobs are told to end; how they ended is learned by `refresh`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from sqlite3 import Row
from typing import TYPE_CHECKING

from campaign.errors import CampaignError, Problem
from campaign.slurm import arrays, commands
from campaign.slurm.states import FINAL, run_state
from campaign.submit import outcome, states
from campaign.submit.guard import Known, guard_cluster
from campaign.submit.ledger import Ledger, now
from campaign.submit.local import cancel_local
from campaign.submit.refresh import ACTIVE_JOBS
from campaign.words import count as number

if TYPE_CHECKING:
    from campaign.project import Project

SPANS_PER_CALL = 500
"""Of one scancel: its argument stays far below what a command line takes."""


@dataclass
class CancelReport:
    """What one `cancel` did."""

    jobs: int = 0
    planned: int = 0
    given_up: int = 0
    """Jobs that can't be reached from here, called lost by force."""
    failed: list[Problem] = field(default_factory=list)


def cancel(project: Project, ledger: Ledger, run_ids: Iterable[str], *, force: bool = False) -> CancelReport:
    """End everything that `run_ids` have queued or running; array elements one by one, packed neighbours included.

    `force`: local jobs whose host can't be reached from here are called lost, so that they can be retried.
    """
    report = CancelReport()
    wanted = set(run_ids)
    report.planned = _take_out(ledger, wanted)
    jobs = [job for job in ledger.query(ACTIVE_JOBS) if job["run_id"] in wanted]
    for job in jobs:
        if job["scheduler"] == "local":
            _cancel_local(ledger, job, report, force=force)
    for site in dict.fromkeys(job["site"] for job in jobs if job["scheduler"] == "slurm"):
        _cancel_slurm(project, ledger, [job for job in jobs if job["site"] == site], report)
    return report


def _take_out(ledger: Ledger, run_ids: set[str]) -> int:
    moment = now()
    with ledger.transaction() as db:
        return sum(
            db.execute(
                "UPDATE runs SET state = 'cancelled', reason = 'cancelled before it was queued', changed = ? "
                "WHERE run_id = ? AND state = 'planned'",
                (moment, run_id),
            ).rowcount
            for run_id in sorted(run_ids)
        )


def _cancel_local(ledger: Ledger, job: Row, report: CancelReport, *, force: bool) -> None:
    key = {name: job[name] for name in ("site", "tag", "array_index", "run_id", "attempt")}
    if not cancel_local(job):
        if force:
            lost = outcome.without_record("lost", None, f"given up: it ran on host {job['host']}")
            states.update_jobs(ledger, [(key, *lost)])
            report.given_up += 1
            return
        hint = f"campaign cancel  on {job['host']}; if that host is gone: campaign cancel --force --run {job['run_id']}"
        report.failed.append(Problem(f"run {job['run_id']} runs on host {job['host']}", hint=hint))
        return
    report.jobs += 1
    # the marker is there: a head that claims from now on sees it and ends, so an unclaimed job will never run
    if not outcome.claimed(job):
        ended = {"state": "cancelled", "reason": "cancelled before it began"}
        states.update_jobs(ledger, [(key, ended, ended)])


def _cancel_slurm(project: Project, ledger: Ledger, jobs: list[Row], report: CancelReport) -> None:
    """One scancel per array, of the elements that live under the name that they were sent with."""
    site = project.load_site(jobs[0]["site"])
    try:
        guard_cluster(site, Known(frozenset(job["cluster"] for job in jobs if job["cluster"])))
    except CampaignError as error:
        report.failed.extend(error.problems)
        return
    known = [job for job in jobs if job["job_id"] is not None]
    if len(known) < len(jobs):
        being = number(len(jobs) - len(known), "run")
        report.failed.append(
            Problem(f"{site.name}: {being} being submitted just now", hint="campaign status, then cancel again")
        )
    queued = commands.squeue(site.name, sorted({job["user"] for job in jobs}))
    if isinstance(queued, commands.Answer):
        report.failed.append(Problem(f"{site.name}: squeue: {queued.stderr}", hint="campaign cancel  (again, later)"))
        return
    # a job id that was handed out again has another name
    live = {(one.job_id, one.array_index, one.name) for one in queued if run_state(one.slurm_state)[0] not in FINAL}
    for tag, job_id in dict.fromkeys((job["tag"], job["job_id"]) for job in known):
        mine = [job for job in known if job["tag"] == tag and (job_id, job["array_index"], tag) in live]
        found = arrays.spans(job["array_index"] for job in mine)
        for start in range(0, len(found), SPANS_PER_CALL):
            part = found[start : start + SPANS_PER_CALL]
            answer = commands.scancel(site.name, f"{job_id}_[{arrays.text(part)}]")
            if answer.ok:
                told = [job for job in mine if part[0][0] <= job["array_index"] <= part[-1][1]]
                report.jobs += len({job["array_index"] for job in told})
                _note_asked(ledger, told)
            else:
                problem = Problem(f"{site.name}: scancel: {answer.stderr}", hint="campaign cancel  (again, later)")
                report.failed.append(problem)


def _note_asked(ledger: Ledger, jobs: list[Row]) -> None:
    """Slurm keeps no record of an array element that was cancelled while it was pending: that we asked tells it."""
    with ledger.transaction() as db:
        db.executemany(
            "UPDATE jobs SET cancel_at = ? WHERE site = ? AND tag = ? AND array_index = ? AND run_id = ?",
            [(now(), job["site"], job["tag"], job["array_index"], job["run_id"]) for job in jobs],
        )
