"""How an attempt ended: its record first, Slurm second."""

from __future__ import annotations

import json
from pathlib import Path
from sqlite3 import Row
from typing import Any

from campaign.slurm.queries import JobReport
from campaign.submit.ledger import age_s

SLURM_KNOWS_BETTER = frozenset({"timeout", "interrupted"})
"""A head that is told to end can't tell a time limit from a cancel or a preemption; Slurm can."""

CLAIMED_BY = "claimed by"
"""How the reason of a job begins that ended because another job has the claim of its attempt."""

Ending = tuple[dict[str, Any], dict[str, Any]]
"""(job values, run values)."""


def run_dir(job: Row) -> Path:
    """Folder of the run: claims and attempts."""
    run_id: str = job["run_id"]
    return Path(job["submit_dir"]).parent.parent / "runs" / run_id[:2] / run_id


def claimed(job: Row) -> bool:
    """True when a head has begun this attempt."""
    return (run_dir(job) / f"claim.a{job['attempt']}").exists()


def claim(job: Row) -> dict[str, Any] | None:
    """Who runs this attempt: the head's {host, pid, ...}; None when nobody has begun or the file is unreadable."""
    try:
        data = json.loads((run_dir(job) / f"claim.a{job['attempt']}").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def record(job: Row) -> dict[str, Any] | None:
    """The final record of this attempt; None when there is none or it can't be read (collect says why)."""
    try:
        data = json.loads((run_dir(job) / f"a{job['attempt']}" / "record.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def from_record(job: Row) -> Ending | None:
    """The ending that the record tells, if there is one."""
    data = record(job)
    if data is None:
        return None
    if data.get("tag") not in (None, job["tag"]):  # another job claimed this attempt first
        reason = f"{CLAIMED_BY} {data['tag']}"
        return {"state": "cancelled", "reason": reason}, {}
    leaving = data.get("exit") or {}
    valid, why = validity(data)
    return (
        {
            "state": data["state"],
            "reason": data.get("reason"),
            "started": data.get("started"),
            "ended": data.get("ended"),
            "exit_code": leaving.get("code"),
            "signal": leaving.get("signal"),
            "nodelist": ",".join(data.get("nodes") or []) or None,
        },
        {
            "state": data["state"],
            "fail_class": data.get("fail_class"),
            "reason": data.get("reason"),
            "valid": int(valid),
            "why_invalid": why,
        },
    )


def settle(job: Row, found: JobReport, state: str, fail_class: str | None, grace_s: float) -> Ending | None:
    """The ending of a job that its scheduler calls over. None: wait for the record a little longer."""
    other = (claim(job) or {}).get("tag")
    if other not in (None, job["tag"]):
        return {"state": "cancelled", "reason": f"{CLAIMED_BY} {other}"}, {}
    ended = from_record(job)
    if ended is not None:
        job_values, run_values = ended
        better = fail_class is not None or state in SLURM_KNOWS_BETTER
        if run_values and better and run_values["state"] != "done":
            run_values |= {"state": state, "fail_class": fail_class or run_values["fail_class"]}
            job_values |= {"state": state}
        return job_values, run_values
    if state == "done" and found.ended is not None and age_s(found.ended) < grace_s:
        return None
    reason = found.reason or f"ended as {found.slurm_state} without a record"
    if state == "done":
        state, fail_class, reason = "failed", "unknown", "the job ended without a record; see its log"
    return (
        {"state": state, "reason": reason},
        {"state": state, "fail_class": fail_class, "reason": reason, "valid": 0, "why_invalid": "no complete record"},
    )


def validity(data: dict[str, Any]) -> tuple[bool, str | None]:
    """Whether a record may be used for scaling, and if not, why (contract section 2)."""
    reasons = []
    if data.get("state") != "done":
        reasons.append(f"ended as {data.get('state')}")
    if not data.get("complete"):
        reasons.append("record incomplete")
    if data.get("resumed_from") is not None:
        reasons.append("resumed, not one attempt")
    if (data.get("host") or {}).get("oversubscribed"):
        reasons.append("oversubscribed: more ranks than cores")
    planned = len(data.get("nodes") or []) * (data.get("ranks_per_node") or 0)
    met = data.get("world_size")
    if met is not None and planned and met != planned:
        reasons.append(f"the process group had {met} ranks, {planned} were started")
    if data.get("packed") == "concurrent":
        reasons.append("packed side by side")
    return not reasons, "; ".join(reasons) or None
