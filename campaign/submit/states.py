"""State changes of runs and jobs in the ledger: each function is one transaction."""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Iterable, Mapping
from sqlite3 import Row
from typing import TYPE_CHECKING, Any

from campaign.slurm.arrays import spans
from campaign.slurm.commands import user_name
from campaign.slurm.states import FINAL
from campaign.submit.ledger import Ledger, now

if TYPE_CHECKING:
    from campaign.submit.batch import Batch


class TakenByAnother(Exception):
    """A run of the batch is no longer planned: another command was quicker. Nothing was changed."""


def take_intent(ledger: Ledger, batch: Batch, scheduler: str, cluster: str | None = None) -> None:
    """Note that this batch is about to be queued. Raises TakenByAnother."""
    moment = now()
    origin = (scheduler, cluster, user_name(), socket.gethostname())
    try:
        with ledger.transaction() as db:
            for index, item in batch.placed():
                taken = db.execute(
                    "UPDATE runs SET state = 'submitting', attempts = ?, run_root = ?, fail_class = NULL, "
                    "reason = NULL, valid = NULL, why_invalid = NULL, changed = ? WHERE run_id = ? "
                    "AND state = 'planned' AND attempts = ?",
                    (item.attempt, str(batch.submit_dir.parent.parent), moment, item.run.run_id, item.attempt - 1),
                ).rowcount
                if not taken:
                    raise TakenByAnother
                db.execute(
                    "INSERT INTO jobs (site, tag, array_index, run_id, attempt, scheduler, cluster, user, host, "
                    "partition, account, state, intent_at, submit_dir, walltime_s, avoided) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'submitting', ?, ?, ?, ?)",
                    (batch.site, batch.tag, index, item.run.run_id, item.attempt, *origin, item.run.partition,
                     item.run.account, moment, str(batch.submit_dir), item.run.walltime_s,
                     ",".join(item.avoid) or None),
                )  # fmt: skip
    except sqlite3.IntegrityError:
        raise TakenByAnother from None  # the tag is there: another command made the very same batch


def note_queued(ledger: Ledger, site: str, tag: str, **job: Any) -> None:
    """The batch has a job id: its jobs and runs are queued. `job`: job_id, script_sha256. Nothing is done when the
    batch is no longer being submitted."""
    moment = now()
    columns = ", ".join(f"{name} = ?" for name in job)
    with ledger.transaction() as db:
        moved = db.execute(
            f"UPDATE jobs SET state = 'queued', submitted_at = ?, state_seen_at = ?, {columns} "
            "WHERE site = ? AND tag = ? AND state = 'submitting'",
            (moment, moment, *job.values(), site, tag),
        ).rowcount
        if moved:
            db.execute(f"UPDATE runs SET state = 'queued', changed = ? WHERE state = 'submitting' AND {_OF_TAG}",
                       (moment, site, tag))  # fmt: skip


_OF_TAG = (
    "EXISTS (SELECT 1 FROM jobs WHERE jobs.site = ? AND jobs.tag = ? AND jobs.run_id = runs.run_id "
    "AND jobs.attempt = runs.attempts)"
)


def give_back(ledger: Ledger, site: str, tag: str, reason: str, *, state: str = "refused") -> None:
    """The batch was never queued: its runs are planned again, under the same attempt number, so that a job which turns
    up late after all finds the claim of whoever runs it first.

    `state` of the jobs: `refused` when the scheduler said so, `lost` when nobody knows (then a late job is looked for).
    Nothing is done when the batch is no longer being submitted.
    """
    with ledger.transaction() as db:
        moved = db.execute(
            "UPDATE jobs SET state = ?, reason = ? WHERE site = ? AND tag = ? AND state = 'submitting'",
            (state, reason, site, tag),
        ).rowcount
        if moved:
            db.execute(
                f"UPDATE runs SET state = 'planned', attempts = attempts - 1, changed = ? "
                f"WHERE state = 'submitting' AND {_OF_TAG}",
                (now(), site, tag),
            )


def revive(ledger: Ledger, site: str, tag: str, job_id: str) -> None:
    """A batch given up as never queued has a job after all: take it back, and its runs unless they were queued anew."""
    moment = now()
    with ledger.transaction() as db:
        db.execute(
            "UPDATE jobs SET state = 'queued', job_id = ?, reason = NULL, state_seen_at = ? "
            "WHERE site = ? AND tag = ? AND state IN ('lost', 'refused') AND job_id IS NULL",
            (job_id, moment, site, tag),
        )
        db.execute(
            "UPDATE runs SET state = 'queued', attempts = attempts + 1, changed = ? WHERE state = 'planned' "
            "AND EXISTS (SELECT 1 FROM jobs WHERE jobs.site = ? AND jobs.tag = ? AND jobs.run_id = runs.run_id "
            "AND jobs.attempt = runs.attempts + 1)",
            (moment, site, tag),
        )


Change = tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]
"""(job key, job values, run values)."""


_KEY = ("site", "tag", "array_index", "run_id")


def update_jobs(ledger: Ledger, changes: Iterable[Change], seen: Iterable[Row] = ()) -> None:
    """Apply changes in one transaction. `seen`: rows of jobs for which a query answered just now.

    A run follows only its newest attempt, and nothing that is still going on replaces an ending.
    """
    moment = now()
    ended = ", ".join(f"'{state}'" for state in sorted(FINAL))
    with ledger.transaction() as db:
        tags: dict[tuple[str, str], list[int]] = {}
        for row in seen:
            tags.setdefault((row["site"], row["tag"]), []).append(row["array_index"])
        db.executemany(
            "UPDATE jobs SET state_seen_at = ? WHERE site = ? AND tag = ? AND array_index BETWEEN ? AND ?",
            [(moment, *tag, *span) for tag, indices in tags.items() for span in spans(indices)],
        )
        for key, job, run in changes:
            if job:
                columns = ", ".join(f"{name} = ?" for name in job)
                db.execute(
                    f"UPDATE jobs SET {columns} WHERE site = ? AND tag = ? AND array_index = ? AND run_id = ?",
                    (*job.values(), *(key[name] for name in _KEY)),
                )
            if run:
                columns = ", ".join(f"{name} = ?" for name in run)
                guard = "" if run.get("state") in FINAL else f" AND state NOT IN ({ended})"
                db.execute(
                    f"UPDATE runs SET {columns}, changed = ? WHERE run_id = ? AND attempts = ? "
                    f"AND state <> 'planned'{guard}",
                    (*run.values(), moment, key["run_id"], key["attempt"]),
                )


def plan_again(ledger: Ledger, run_ids: Iterable[str], *, walltimes: Mapping[str, int] | None = None) -> int:
    """Runs that ended without success become planned; the next submission is a new attempt. Gives how many.

    `walltimes`: seconds that the next attempts of some of them get, in place of what was planned; also of those that
    are planned again already. Why the old attempt ended stays with its job and its record.
    """
    moment = now()
    with ledger.transaction() as db:
        again = sum(
            db.execute(
                "UPDATE runs SET walltime_s = ?, changed = ? WHERE run_id = ? AND state = 'planned' AND "
                "EXISTS (SELECT 1 FROM jobs WHERE jobs.run_id = runs.run_id)",
                (walltime_s, moment, run_id),
            ).rowcount
            for run_id, walltime_s in (walltimes or {}).items()
        )
        return again + sum(
            db.execute(
                "UPDATE runs SET state = 'planned', superseded_by = NULL, fail_class = NULL, reason = NULL, "
                "valid = NULL, why_invalid = NULL, walltime_s = coalesce(?, walltime_s), changed = ? "
                "WHERE run_id = ? AND state IN ('failed', 'timeout', 'interrupted', 'cancelled', 'lost')",
                ((walltimes or {}).get(run_id), moment, run_id),
            ).rowcount
            for run_id in run_ids
        )


def note_decision(ledger: Ledger, decisions: Iterable[tuple[str, int, str]]) -> None:
    """Keep what was decided about another attempt: (run id, attempt that ended, words)."""
    with ledger.transaction() as db:
        db.executemany("UPDATE jobs SET again = ?3 WHERE run_id = ?1 AND attempt = ?2", decisions)
