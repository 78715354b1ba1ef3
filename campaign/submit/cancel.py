"""Cancel: planned runs leave the plan, jobs are told to end; how they ended is learned by `refresh`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from sqlite3 import Row
from typing import TYPE_CHECKING

from campaign.errors import Problem
from campaign.slurm import commands
from campaign.submit import outcome, states
from campaign.submit.ledger import Ledger, now
from campaign.submit.local import cancel_local
from campaign.words import count as number

if TYPE_CHECKING:
    from campaign.project import Project

TARGETS_PER_CALL = 500


@dataclass
class CancelReport:
    """What one `cancel` did."""

    jobs: int = 0
    planned: int = 0
    failed: list[Problem] = field(default_factory=list)


def cancel(project: Project, ledger: Ledger, run_ids: Iterable[str]) -> CancelReport:
    """End everything that `run_ids` have queued or running; array elements one by one, packed neighbours included."""
    report = CancelReport()
    wanted = set(run_ids)
    report.planned = _take_out(ledger, wanted)
    jobs = [
        job
        for job in ledger.query("SELECT * FROM jobs WHERE state IN ('submitting', 'queued', 'running', 'unknown')")
        if job["run_id"] in wanted
    ]
    local = [job for job in jobs if job["scheduler"] == "local"]
    for job in local:
        _cancel_local(ledger, job, report)
    for site in dict.fromkeys(job["site"] for job in jobs if job["scheduler"] == "slurm"):
        _cancel_slurm(site, [job for job in jobs if job["site"] == site], report)
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


def _cancel_local(ledger: Ledger, job: Row, report: CancelReport) -> None:
    if not cancel_local(job):
        report.failed.append(
            Problem(f"run {job['run_id']} runs on host {job['host']}", hint=f"campaign cancel on {job['host']}")
        )
        return
    report.jobs += 1
    # the marker is there: a head that claims from now on sees it and ends, so an unclaimed job will never run
    if not outcome.claimed(job):
        ended = {"state": "cancelled", "reason": "cancelled before it began"}
        key = {name: job[name] for name in ("site", "tag", "array_index", "run_id", "attempt")}
        states.update_jobs(ledger, [(key, ended, ended)])


def _cancel_slurm(site: str, jobs: list[Row], report: CancelReport) -> None:
    known = [job for job in jobs if job["job_id"] is not None]
    if len(known) < len(jobs):
        report.failed.append(
            Problem(
                f"{site}: {number(len(jobs) - len(known), 'run')} being submitted just now",
                hint="campaign status, then cancel",
            )
        )
    targets = sorted({f"{job['job_id']}_{job['array_index']}" for job in known})
    for start in range(0, len(targets), TARGETS_PER_CALL):
        part = targets[start : start + TARGETS_PER_CALL]
        answer = commands.scancel(site, part)
        if answer.ok:
            report.jobs += len(part)
        else:
            report.failed.append(Problem(f"{site}: scancel: {answer.stderr}", hint="campaign cancel  (again, later)"))
