"""The claim: a run is executed at most once per attempt, whatever the controller does late."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

from campaign.job.clock import process_start_ticks, utc
from campaign.job.files import create, make_folder, sync, write_all
from campaign.job.spec import RunSpec


class Claimed(Exception):
    """Another job has claimed this attempt. `owner` is what its claim file says."""

    def __init__(self, owner: dict[str, Any]) -> None:
        self.owner = owner
        super().__init__(f"claimed by {owner.get('job') or 'another job'} on {owner.get('host') or 'an unknown host'}")


def claim_path(spec: RunSpec) -> Path:
    """Where the claim of this attempt is."""
    return spec.run_dir / f"claim.a{spec.attempt}"


def job_id() -> str:
    """This job as the scheduler names it; `local-PID` without one."""
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    if array:
        return f"{array}_{os.environ.get('SLURM_ARRAY_TASK_ID', '0')}"
    return os.environ.get("SLURM_JOB_ID") or f"local-{os.getpid()}"


def claim(spec: RunSpec) -> None:
    """Take the attempt for this process by atomic create. Raises Claimed; OSError when the folder can't be written."""
    make_folder(spec.run_dir, group_readable=spec.group_readable)
    path = claim_path(spec)
    owner = {
        "schema": 1,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "process_start": process_start_ticks(os.getpid()),
        "job": job_id(),
        "tag": spec.tag,
        "token_sha256": hashlib.sha256(spec.token.encode()).hexdigest(),
        "time": utc(time.time()),
    }
    try:
        fd = create(path, group_readable=spec.group_readable)
    except FileExistsError:
        raise Claimed(_read(path)) from None
    try:
        write_all(fd, json.dumps(owner).encode() + b"\n")
        os.fsync(fd)
    finally:
        os.close(fd)
    sync(spec.run_dir)


def _read(path: Path) -> dict[str, Any]:
    """The winner's claim; empty when it has been created but not written yet."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
