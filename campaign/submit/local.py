"""State of jobs on the local site: the queue process, the claim of the head, the record."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from sqlite3 import Row
from typing import Any

from campaign.job.clock import process_start_ticks
from campaign.slurm.queries import JobReport
from campaign.submit import outcome
from campaign.submit.ledger import age_s

AHEAD = 3
"""A queue goes through its runs in order: so many unclaimed ones in a row, and the rest of the tag waits too."""


def local_reports(jobs: Iterable[Row], slots: int, grace_s: float) -> Iterator[tuple[Row, JobReport]]:
    """What this machine says of local jobs, in Slurm's words; nothing of jobs that belong to another host.

    Looks at few files, whatever the length of a queue: it runs on the cores that are being measured.
    """
    tags: dict[str, list[Row]] = {}
    for job in jobs:
        tags.setdefault(job["tag"], []).append(job)
    for group in tags.values():
        group.sort(key=lambda job: int(job["array_index"]))
        lives = _queue_lives(group[0])
        waiting = 0
        for job in group:
            if lives and waiting >= slots + AHEAD:
                yield job, _report(job, "PENDING")
                continue
            report = _look(job, lives, grace_s)
            if report is not None:
                waiting = waiting + 1 if report.slurm_state == "PENDING" else 0
                yield job, report


def _look(job: Row, queue_lives: bool, grace_s: float) -> JobReport | None:
    if outcome.record(job) is not None:
        return _report(job, "COMPLETED")
    if job["host"] != socket.gethostname():
        return None
    claim = outcome.claim(job)
    if claim is None:
        return _unbegun(job, queue_lives, grace_s)
    return _begun(job, claim)


def _unbegun(job: Row, queue_lives: bool, grace_s: float) -> JobReport | None:
    if queue_lives:
        return _report(job, "PENDING")
    if job["job_id"] is None and age_s(job["intent_at"]) < grace_s:
        return None  # the command that starts its queue may still be at it
    # the marker first, the claim second: a head that comes up now sees the marker, or we see its claim
    mark_cancelled(job)
    claim = outcome.claim(job)
    if claim is None:
        return _report(job, "CANCELLED", "its queue ended before this run began")
    return _begun(job, claim)


def _begun(job: Row, claim: dict[str, Any]) -> JobReport:
    if _head_lives(claim):
        return _report(job, "RUNNING")
    if outcome.record(job) is not None:
        return _report(job, "COMPLETED")
    return _report(job, "FAILED", "the head ended without a record")


def _queue_lives(job: Row) -> bool:
    """True when submitit's controller of this tag runs here."""
    return (
        job["job_id"] is not None
        and job["host"] == socket.gethostname()
        and job["submit_dir"] in _command(int(job["job_id"]))
    )


def _head_lives(claim: dict[str, Any]) -> bool:
    """True when the very process that claimed is alive: numbers are reused, start times are not."""
    pid = claim.get("pid")
    if not isinstance(pid, int) or "campaign.job.head" not in _command(pid):
        return False
    started = claim.get("process_start")
    return started is None or started == process_start_ticks(pid)


def _command(pid: int) -> str:
    """Command line of a living process; empty for one that has ended (a zombie too)."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def _report(job: Row, state: str, reason: str | None = None) -> JobReport:
    return JobReport(
        job_id=job["job_id"] or "",
        array_index=job["array_index"],
        name=job["tag"],
        slurm_state=state,
        source="local",
        reason=reason,
    )


def mark_cancelled(job: Row) -> None:
    """Leave the marker that keeps queue and head from beginning this element."""
    folder = Path(job["submit_dir"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"cancel.{job['array_index']}").touch()


def cancel_local(job: Row) -> bool:
    """Ask a local job to end: the marker for queue and head, SIGTERM for a head that runs here.

    True when that is all that is needed: it has not begun, or its head runs here and was told, or it has ended.
    """
    mark_cancelled(job)
    claim = outcome.claim(job)
    if claim is None or outcome.record(job) is not None:
        return True
    if job["host"] != socket.gethostname():
        return False
    if _head_lives(claim):
        with suppress(ProcessLookupError):
            os.kill(int(claim["pid"]), signal.SIGTERM)
    return True
