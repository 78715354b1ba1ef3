"""State of jobs on the local site: the queue process, the claim of the head, the record."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from pathlib import Path
from sqlite3 import Row

from campaign.slurm.queries import JobReport
from campaign.submit import outcome


def alive(pid: int) -> bool:
    """True when a process of this number runs here; a zombie has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False
    return "\nState:\tZ" not in status


def _is(pid: int, word: str) -> bool:
    """True when the process is one of ours (numbers are reused)."""
    with suppress(OSError):
        return word in Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return False


def local_report(job: Row) -> JobReport | None:
    """What this machine says of a local job, in Slurm's words. None: the job is on another host."""
    recorded = outcome.record(job) is not None
    if recorded:
        return _report(job, "COMPLETED")
    if job["job_id"] is None or job["host"] not in (None, socket.gethostname()):
        return None
    claim = outcome.claim(job)
    if claim is None:
        if alive(int(job["job_id"])) and _is(int(job["job_id"]), "submitit"):
            return _report(job, "PENDING")
        return _report(job, "CANCELLED", "its queue ended before this run began")
    pid = int(claim.get("pid") or 0)
    if alive(pid) and _is(pid, "campaign.job.head"):
        return _report(job, "RUNNING")
    return _report(job, "FAILED", "the head ended without a record")


def _report(job: Row, state: str, reason: str | None = None) -> JobReport:
    return JobReport(
        job_id=job["job_id"] or "",
        array_index=job["array_index"],
        name=job["tag"],
        slurm_state=state,
        source="local",
        reason=reason,
    )


def cancel_local(job: Row) -> bool:
    """Ask a local job to end: a marker for its queue, SIGTERM for its head. True when it was on this host."""
    if job["host"] not in (None, socket.gethostname()):
        return False
    (Path(job["submit_dir"]) / f"cancel.{job['array_index']}").touch()
    claim = outcome.claim(job)
    if claim is not None and outcome.record(job) is None:
        pid = int(claim.get("pid") or 0)
        if alive(pid) and _is(pid, "campaign.job.head"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
    return True
