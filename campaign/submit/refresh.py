"""Bring the ledger up to date: what Slurm, the local queues and the run folders say of jobs that may still exist.

One squeue and one sacct call per site, whatever the number of jobs. A query that failed changes nothing but what
records tell; the age of what is known is kept (`state_seen_at`). That a job isn't there is concluded only when every
query of the site was answered, for jobs of the user who asks, by the cluster that the job was sent to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from sqlite3 import Row
from typing import TYPE_CHECKING, Any

from campaign.errors import Problem
from campaign.slurm.queries import JobReport
from campaign.slurm.states import FINAL, run_state
from campaign.submit import outcome, states
from campaign.submit.answers import Answers, ask
from campaign.submit.batch import tidy
from campaign.submit.ledger import Ledger, age_s, now
from campaign.submit.local import local_reports

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

SITES = (
    "SELECT DISTINCT site FROM jobs WHERE state IN ('submitting', 'queued', 'running', 'unknown', 'lost') ORDER BY 1"
)
"""Where jobs may still exist, or turn up late."""

RECORD_GRACE_S = 60.0
"""A job that is over is waited for this long before its record counts as missing (NFS caches)."""

Change = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]
Judged = tuple[list[Change], list[Row]]
"""Changes, and the jobs for which a query answered."""


@dataclass
class RefreshReport:
    """What one refresh found."""

    polled: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Sites asked less than `poll_interval_s` ago."""
    warnings: list[Problem] = field(default_factory=list)
    """Sites that gave no answer; the message is the same as long as the cause is."""
    changed: int = 0
    """Jobs whose state changed."""


def refresh(
    project: Project, ledger: Ledger, *, force: bool = False, note: Callable[[str], None] = lambda _: None
) -> RefreshReport:
    """Refresh every site that has jobs which may still exist; at most every `poll_interval_s` unless `force`."""
    report = RefreshReport()
    for (name,) in ledger.query(SITES):
        site = project.load_site(name)
        if not force and _asked_lately(ledger, name, site.scheduler.poll_interval_s):
            report.skipped.append(name)
            continue
        jobs = [
            job for query in (ACTIVE_JOBS, LATE_JOBS) for job in ledger.query(f"{query} AND jobs.site = ?", (name,))
        ]
        if not jobs:
            continue
        if site.scheduler.kind == "local":
            _note_poll(ledger, name, None)
            changes, seen = _local_changes(ledger, jobs, site)
        else:
            answers = ask(site, jobs)
            alive = (job for job in jobs if job["state"] in ("queued", "running"))
            if (other := answers.elsewhere(alive, site.cluster_name)) is not None:
                answers = Answers(site.name, None, None, other)
            _note_poll(ledger, name, answers.error)
            if answers.error is not None:
                report.warnings.append(_no_answer(ledger, name, answers.error))
            changes, seen = judge(ledger, jobs, answers, site)
        report.polled.append(name)
        states.update_jobs(ledger, changes, seen)
        report.changed += sum("state" in job for _, job, _ in changes)
        note(f"{name}: {len(jobs)} jobs looked at")
    return report


def _asked_lately(ledger: Ledger, site: str, interval_s: float) -> bool:
    rows = ledger.query("SELECT at FROM polls WHERE site = ?", (site,))
    return bool(rows and age_s(rows[0]["at"]) < interval_s)


def _note_poll(ledger: Ledger, site: str, error: str | None) -> None:
    moment = now()
    with ledger.transaction() as db:
        db.execute(
            "INSERT INTO polls (site, at, ok_at, error) VALUES (?, ?, ?, ?) ON CONFLICT (site) DO UPDATE SET "
            "at = excluded.at, ok_at = coalesce(excluded.ok_at, ok_at), error = excluded.error",
            (site, moment, None if error else moment, error),
        )


# -- local -----------------------------------------------------------------------------------------------------------


def _local_changes(ledger: Ledger, jobs: Sequence[Row], site: Site) -> Judged:
    """Changes of local jobs. A tag whose queue never started is given back: its runs are planned again."""
    slots = site.scheduler.limits.running_jobs or 1
    changes: list[Change] = []
    seen: list[Row] = []
    never: dict[str, bool] = {}
    for job, found in local_reports(jobs, slots, site.scheduler.adopt_grace_s):
        if job["job_id"] is None:
            never[job["tag"]] = never.get(job["tag"], True) and found.slurm_state == "CANCELLED"
        seen.append(job)
        changes.append(_change(job, found))
    back = {tag for tag, all_unbegun in never.items() if all_unbegun}
    for tag in back:
        tidy(next(Path(job["submit_dir"]) for job in jobs if job["tag"] == tag))
        states.give_back(ledger, site.name, tag, "its local queue never started", state="lost")
    return [change for change in changes if change[0]["tag"] not in back and any(change[1:])], seen


# -- Slurm -----------------------------------------------------------------------------------------------------------


def judge(ledger: Ledger, jobs: Sequence[Row], answers: Answers, site: Site) -> Judged:
    """What Slurm's answers mean for jobs: changes, and the jobs that a query knew."""
    changes: list[Change] = []
    seen: list[Row] = []
    for job in _adopted(ledger, jobs, answers, site):
        found = answers.find(job)
        if found is not None:
            seen.append(job)
            change: Change | None = _change(job, found)
        else:
            change = _gone(job, answers, site)
        if change is not None and any(change[1:]):
            changes.append(change)
    return changes, seen


def _no_answer(ledger: Ledger, site: str, error: str) -> Problem:
    """The message is the same as long as the cause is, but for the age."""
    (row,) = ledger.query("SELECT ok_at FROM polls WHERE site = ?", (site,))
    age = "never answered so far" if row["ok_at"] is None else f"last answered in full {age_s(row['ok_at']):.0f} s ago"
    hint = f"{site} {age}: what it didn't say is as it was; campaign status  again, or on the site's login node"
    return Problem(f"{site}: {error}", hint=hint)


def _adopted(ledger: Ledger, jobs: Sequence[Row], answers: Answers, site: Site) -> list[Row]:
    """The jobs whose id is known; for tags whose sbatch answer was never seen, what the tag's name in Slurm means.

    Found, or claimed by a head: adopted. Not there, `adopt_grace_s` after the intent: given back.
    """
    known: list[Row] = []
    unanswered: dict[str, list[Row]] = {}
    for job in jobs:
        if job["job_id"] is None:
            unanswered.setdefault(job["tag"], []).append(job)
        else:
            known.append(job)
    for tag, group in unanswered.items():
        job_id = _id_of(group, answers)
        folder = Path(group[0]["submit_dir"])
        if job_id is not None:
            tidy(folder, job_id)  # before the ledger knows: a kill in between tidies again
            if group[0]["state"] == "lost":
                states.revive(ledger, site.name, tag, job_id)
            else:
                states.note_queued(ledger, site.name, tag, job_id=job_id)
            known += ledger.query("SELECT * FROM jobs WHERE site = ? AND tag = ?", (site.name, tag))
        elif (
            group[0]["state"] == "submitting"
            and age_s(group[0]["intent_at"]) > site.scheduler.adopt_grace_s
            and answers.absence_counts(group[0])
        ):
            tidy(folder)
            states.give_back(ledger, site.name, tag, "no job of this name ever reached the queue", state="lost")
    return known


def _id_of(group: Sequence[Row], answers: Answers) -> str | None:
    """The job id behind a tag: from Slurm, else from the claim of a head that has come and perhaps gone."""
    for job in group:
        found = answers.find(job)
        if found is not None:
            return found.job_id
    for job in group:
        claim = outcome.claim(job)
        if claim and claim.get("tag") == job["tag"]:
            return str(claim.get("job", "")).partition("_")[0] or None
    return None


def _gone(job: Row, answers: Answers, site: Site) -> Change | None:
    """A job that no query knows: its record decides, and after `lost_after_s` it is lost."""
    ended = outcome.from_record(job)
    unseen_s = age_s(job["state_seen_at"] or job["intent_at"])
    if ended is not None and _slurm_may_still_say_why(job, ended, answers, site, unseen_s):
        return None
    if ended is not None:
        return _key(job), *ended
    if _cancelled_while_pending(job, answers, unseen_s > site.scheduler.adopt_grace_s):
        return _key(job), *outcome.without_record("cancelled", None, "cancelled while it was pending")
    if unseen_s < site.scheduler.lost_after_s or not answers.absence_counts(job):
        return None
    reason = f"Slurm no longer knows the job, and it left no record within {site.scheduler.lost_after_s:g} s"
    return _key(job), *outcome.without_record("lost", None, reason)


def _slurm_may_still_say_why(job: Row, ended: outcome.Ending, answers: Answers, site: Site, unseen_s: float) -> bool:
    """True for a head that was told to end, by no command of ours: accounting, which lags, knows by whom."""
    told = ended[1]["state"] in outcome.TOLD_TO_END and job["cancel_at"] is None
    return told and site.accounting and (answers.error is not None or unseen_s <= site.scheduler.adopt_grace_s)


def _cancelled_while_pending(job: Row, answers: Answers, waited: bool) -> bool:
    """True for an array element that left the queue before it began: Slurm keeps no record of such a one.

    When we asked for it that is certain at once; else when others of its array are known and it stays away.
    """
    if job["state"] != "queued" or outcome.claimed(job) or not answers.absence_counts(job):
        return False
    return job["cancel_at"] is not None or (waited and answers.knows_array(job))


# -- both ------------------------------------------------------------------------------------------------------------


def _change(job: Row, found: JobReport) -> Change:
    """What a report means for job and run. A final state waits for the record, which knows more than Slurm."""
    state, fail_class = run_state(found.slurm_state)
    values = _news(job, found)
    if state not in FINAL:
        if job["over_since"] is not None:
            values["over_since"] = None  # requeued
        if job["state"] != state:
            values["state"] = state
        return _key(job), values, {"state": state} if "state" in values else {}
    if job["over_since"] is None:
        values["over_since"] = now()
    ended = outcome.settle(job, found, state, fail_class, RECORD_GRACE_S)
    if ended is None:
        # over for Slurm, and its record is waited for: it did begin
        begun = {"state": "running"} if job["state"] == "queued" else {}
        return _key(job), values | begun, begun
    job_values, run_values = ended
    return _key(job), values | job_values, run_values


_SAID = ("slurm_state", "cluster", "partition", "account", "started", "ended", "nodelist", "exit_code", "signal",
         "reason", "expected_start")  # fmt: skip


def _news(job: Row, found: JobReport) -> dict[str, Any]:
    """What a report says that the ledger doesn't, as columns of `jobs`; what it doesn't say stays as it was."""
    said = {name: getattr(found, name) for name in _SAID}
    said["submitted_at"] = found.submitted
    news = {name: value for name, value in said.items() if value is not None and value != job[name]}
    if found.source == "squeue" and found.reason is None and job["reason"] is not None:
        news["reason"] = None  # what it waited for is over
    return news


def _key(job: Row) -> dict[str, Any]:
    return {name: job[name] for name in ("site", "tag", "array_index", "run_id", "attempt")}
