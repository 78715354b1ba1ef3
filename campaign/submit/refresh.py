"""Bring the ledger up to date: what Slurm, the local queues and the run folders say of jobs that may still exist.

One squeue and one sacct call per site, whatever the number of jobs. A query that failed changes nothing; the age of
what is known is kept (`state_seen_at`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from sqlite3 import Row
from typing import TYPE_CHECKING, Any

from campaign.errors import Problem
from campaign.slurm import commands
from campaign.slurm.queries import JobReport
from campaign.slurm.states import FINAL, run_state
from campaign.submit import outcome, states
from campaign.submit.ledger import Ledger, age_s, now
from campaign.submit.local import local_report

if TYPE_CHECKING:
    from campaign.project import Project
    from campaign.site import Site

ACTIVE_JOBS = "SELECT * FROM jobs WHERE state IN ('submitting', 'queued', 'running', 'unknown')"

LATE_JOBS = (
    "SELECT jobs.* FROM jobs JOIN runs USING (run_id) WHERE jobs.state = 'lost' AND jobs.job_id IS NULL "
    "AND runs.state IN ('planned', 'queued', 'submitting') AND jobs.scheduler = 'slurm' "
    "AND julianday('now') - julianday(jobs.intent_at) < 1"
)
"""Jobs given up as never queued, for a day: a controller may have accepted one late."""

RECORD_GRACE_S = 60.0
"""A job that Slurm calls COMPLETED is waited for this long before its record counts as missing (NFS caches)."""

Change = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]


@dataclass
class RefreshReport:
    """What one refresh found."""

    polled: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Sites polled less than `poll_interval_s` ago."""
    warnings: list[Problem] = field(default_factory=list)
    changed: int = 0
    """Jobs whose state changed."""


def refresh(
    project: Project, ledger: Ledger, *, force: bool = False, note: Callable[[str], None] = lambda _: None
) -> RefreshReport:
    """Refresh every site that has jobs which may still exist; at most every `poll_interval_s` unless `force`."""
    report = RefreshReport()
    by_site: dict[str, list[Row]] = {}
    for job in [*ledger.query(ACTIVE_JOBS), *ledger.query(LATE_JOBS)]:
        by_site.setdefault(job["site"], []).append(job)
    for name, jobs in by_site.items():
        site = project.load_site(name)
        if site.scheduler.kind == "local":
            changes = [_change(job, local_report(job), site) for job in jobs]
        else:
            if not force and _fresh(ledger, name, site.scheduler.poll_interval_s):
                report.skipped.append(name)
                continue
            answers = _ask(site, jobs)
            _note_poll(ledger, name, answers)
            if isinstance(answers, commands.Answer):
                report.warnings.append(_away(name, answers, jobs))
                continue
            changes = [_slurm_change(job, answers, site) for job in _settled(ledger, jobs, answers, site)]
        report.polled.append(name)
        real = [change for change in changes if change is not None]
        states.update_jobs(ledger, real)
        _follow_claimants(ledger, real)
        report.changed += sum("state" in job for _, job, _ in real)
        note(f"{name}: {len(jobs)} jobs looked at")
    return report


Reports = dict[tuple[str, int | None], JobReport]


@dataclass(frozen=True)
class _Answers:
    """What both queries said, by (job id or tag, array index)."""

    squeue: Reports
    sacct: Reports | None
    """None: the site has no accounting, or sacct failed."""
    sacct_asked: bool

    @property
    def complete(self) -> bool:
        """True when absence means absence: every query the site has was answered."""
        return not self.sacct_asked or self.sacct is not None

    def find(self, job: Row) -> JobReport | None:
        """The newest word on one array element: squeue on what lives, sacct on what has ended.

        By job id once it is known: for some seconds sacct may name a job `allocation`, when slurmdbd hears of a step
        before it hears of the job.
        """
        name = job["job_id"] or job["tag"]
        live = _look(self.squeue, name, job["array_index"])
        ended = _look(self.sacct or {}, name, job["array_index"])
        if live is not None and (ended is None or run_state(live.slurm_state)[0] not in FINAL):
            return live
        return ended or live


def _look(reports: Reports, name: str, index: int) -> JobReport | None:
    return reports.get((name, index)) or reports.get((name, None))


def _by_place(reports: list[JobReport]) -> Reports:
    """Reports by job id and by tag; of several jobs of one tag the first that was queued counts."""
    places: Reports = {}
    for report in sorted(reports, key=lambda report: int(report.job_id)):
        places[report.job_id, report.array_index] = report
        places.setdefault((report.name, report.array_index), report)
    return places


def _ask(site: Site, jobs: Iterable[Row]) -> _Answers | commands.Answer:
    queued = commands.squeue(site.name)
    if isinstance(queued, commands.Answer):
        return queued
    accounted = None
    if site.accounting:
        oldest = min(job["intent_at"] for job in jobs)
        answer = commands.sacct(site.name, oldest)
        accounted = None if isinstance(answer, commands.Answer) else _by_place(answer)
    return _Answers(_by_place(queued), accounted, site.accounting)


def _fresh(ledger: Ledger, site: str, interval_s: float) -> bool:
    rows = ledger.query("SELECT ok_at FROM polls WHERE site = ?", (site,))
    return bool(rows and rows[0]["ok_at"] and age_s(rows[0]["ok_at"]) < interval_s)


def _note_poll(ledger: Ledger, site: str, answers: _Answers | commands.Answer) -> None:
    error = answers.stderr if isinstance(answers, commands.Answer) else None
    moment = now()
    with ledger.transaction() as db:
        db.execute(
            "INSERT INTO polls (site, at, ok_at, error) VALUES (?, ?, ?, ?) ON CONFLICT (site) DO UPDATE SET "
            "at = excluded.at, ok_at = coalesce(excluded.ok_at, ok_at), error = excluded.error",
            (site, moment, None if error else moment, error),
        )


def _away(site: str, answer: commands.Answer, jobs: list[Row]) -> Problem:
    oldest = min((job["state_seen_at"] or job["intent_at"] for job in jobs), default=now())
    return Problem(
        f"{site}: Slurm didn't answer, states are as they were {age_s(oldest):.0f} s ago: {answer.stderr}",
        hint="campaign status  (again later, or on the site's login node)",
    )


def _settled(ledger: Ledger, jobs: Iterable[Row], answers: _Answers, site: Site) -> list[Row]:
    """The jobs whose id is known; for tags whose sbatch answer was never seen, what the tag's name in Slurm means.

    Found: adopted. Not found by queries that were all answered, `adopt_grace_s` after the intent: given back.
    """
    known: list[Row] = []
    unanswered: dict[str, list[Row]] = {}
    for job in jobs:
        if job["job_id"] is None:
            unanswered.setdefault(job["tag"], []).append(job)
        else:
            known.append(job)
    for tag, group in unanswered.items():
        found = [report for report in map(answers.find, group) if report is not None]
        if found and group[0]["state"] == "lost":
            states.revive(ledger, site.name, tag, found[0].job_id)
        elif found:
            states.note_queued(ledger, site.name, tag, job_id=found[0].job_id)
        elif (
            group[0]["state"] == "submitting"
            and answers.complete
            and age_s(group[0]["intent_at"]) > site.scheduler.adopt_grace_s
            and not any(outcome.claimed(job) for job in group)
        ):
            reason = "no job of this name ever reached the queue"
            states.give_back(ledger, site.name, tag, reason, state="lost")
        if found:
            known += ledger.query("SELECT * FROM jobs WHERE site = ? AND tag = ?", (site.name, tag))
    return known


def _follow_claimants(ledger: Ledger, changes: Iterable[Change]) -> None:
    """Where a job ended because another tag of the same attempt has the claim, that tag's job is the one to follow."""
    for key, job, _ in changes:
        if str(job.get("reason")).startswith(outcome.CLAIMED_BY):
            row = ledger.query("SELECT * FROM jobs WHERE site = ? AND tag = ? AND array_index = ? AND run_id = ?",
                               (key["site"], key["tag"], key["array_index"], key["run_id"]))[0]  # fmt: skip
            claim = outcome.claim(row) or {}
            states.revive(ledger, key["site"], str(claim.get("tag")), str(claim.get("job", "")).partition("_")[0])


def _slurm_change(job: Row, answers: _Answers, site: Site) -> Change | None:
    found = answers.find(job)
    if found is not None:
        return _change(job, found, site)
    return _gone(job, site) if answers.complete else None


def _gone(job: Row, site: Site) -> Change | None:
    """A job that neither query knows any more: its record decides, and after `lost_after_s` it is lost."""
    ended = outcome.from_record(job)
    if ended is not None:
        return _key(job), *ended
    if age_s(job["state_seen_at"] or job["intent_at"]) < site.scheduler.lost_after_s:
        return None
    reason = f"Slurm no longer knows the job and it left no record within {site.scheduler.lost_after_s} s"
    return _key(job), {"state": "lost", "reason": reason}, {"state": "lost", "reason": reason, "valid": 0,
                                                             "why_invalid": "lost"}  # fmt: skip


def _change(job: Row, found: JobReport | None, site: Site) -> Change | None:
    """What a report means for job and run. A final state waits for the record, which knows more than Slurm."""
    if found is None:
        return None
    state, fail_class = run_state(found.slurm_state)
    values: dict[str, Any] = {
        name: value
        for name, value in (
            ("slurm_state", found.slurm_state), ("cluster", found.cluster), ("partition", found.partition),
            ("account", found.account), ("started", found.started), ("ended", found.ended),
            ("nodelist", found.nodelist), ("exit_code", found.exit_code), ("signal", found.signal),
            ("reason", found.reason), ("submitted_at", found.submitted),
        )
        if value is not None
    }  # fmt: skip
    values["state_seen_at"] = now()
    if state not in FINAL:
        if job["state"] == "running" and state == "queued":
            state = "running" if outcome.claimed(job) else state
        if job["state"] != state:
            values["state"] = state
        return _key(job), values, {"state": state} if "state" in values else {}
    ended = outcome.settle(job, found, state, fail_class, RECORD_GRACE_S)
    if ended is None:
        return _key(job), values, {}
    job_values, run_values = ended
    return _key(job), values | job_values, run_values


def _key(job: Row) -> dict[str, Any]:
    return {name: job[name] for name in ("site", "tag", "array_index", "run_id", "attempt")}
