"""Cancel: planned runs leave the plan, jobs are told to end; how they ended is learned by `refresh`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from sqlite3 import Row
from typing import TYPE_CHECKING

from campaign.errors import CampaignError, Problem
from campaign.slurm import commands
from campaign.submit import outcome, states
from campaign.submit.guard import Known, guard_cluster
from campaign.submit.ledger import Ledger, now
from campaign.submit.local import cancel_local
from campaign.submit.refresh import ACTIVE_JOBS
from campaign.words import count as number

if TYPE_CHECKING:
    from campaign.project import Project

TARGETS_PER_CALL = 500


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
    """One scancel per job name and 500 elements: with the name, a job id that was handed out again is left alone."""
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
    for tag in dict.fromkeys(job["tag"] for job in known):
        targets = sorted({_target(job) for job in known if job["tag"] == tag})
        for start in range(0, len(targets), TARGETS_PER_CALL):
            part = targets[start : start + TARGETS_PER_CALL]
            answer = commands.scancel(site.name, tag, part)
            if answer.ok:
                report.jobs += len(part)
                _note_asked(ledger, [job for job in known if _target(job) in part])
            else:
                problem = Problem(f"{site.name}: scancel: {answer.stderr}", hint="campaign cancel  (again, later)")
                report.failed.append(problem)


def _target(job: Row) -> str:
    return f"{job['job_id']}_{job['array_index']}"


def _note_asked(ledger: Ledger, jobs: list[Row]) -> None:
    """Slurm keeps no record of an array element that was cancelled while it was pending: that we asked tells it."""
    with ledger.transaction() as db:
        db.executemany(
            "UPDATE jobs SET cancel_at = ? WHERE site = ? AND tag = ? AND array_index = ? AND run_id = ?",
            [(now(), job["site"], job["tag"], job["array_index"], job["run_id"]) for job in jobs],
        )
