"""How an attempt ended: its record first, the scheduler second."""

from __future__ import annotations

import json
from pathlib import Path
from sqlite3 import Row
from typing import Any

from campaign.job.spec import run_folder
from campaign.slurm.queries import JobReport
from campaign.slurm.states import FINAL
from campaign.submit.ledger import age_s
from campaign.submit.resumed import went_on

TOLD_TO_END = frozenset({"cancelled", "interrupted"})
"""What a head writes that was told to end and can't know why: a time limit, a lost node, a preemption or a user."""

CLAIMED_BY = "claimed by"

Job = Row | dict[str, Any]
"""A row of the ledger's `jobs`, or one that was brought up to date."""

Ending = tuple[dict[str, Any], dict[str, Any]]
"""(job values, run values)."""


def run_dir(job: Job) -> Path:
    """Folder of the run: claims and attempts."""
    return run_folder(Path(job["submit_dir"]).parent.parent, job["run_id"])


def claimed(job: Job) -> bool:
    """True when a head has begun this attempt."""
    return (run_dir(job) / f"claim.a{job['attempt']}").exists()


def claim(job: Job) -> dict[str, Any] | None:
    """Who runs this attempt: the head's {host, pid, tag, job, ...}; None when nobody has begun; {} when unreadable."""
    path = run_dir(job) / f"claim.a{job['attempt']}"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def record(job: Job) -> dict[str, Any] | None:
    """The final record of this attempt; None when there is none or it can't be read (collect says why)."""
    try:
        data = json.loads((run_dir(job) / f"a{job['attempt']}" / "record.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) and data.get("state") in FINAL else None


def from_record(job: Job) -> Ending | None:
    """The ending that the attempt's record tells, if there is one. It decides the run whichever job wrote it."""
    data = record(job)
    if data is None:
        return None
    valid, why = validity(data, resumed=went_on(run_dir(job), job["attempt"]))
    run_values = {
        "state": data["state"],
        "fail_class": data.get("fail_class"),
        "reason": data.get("reason"),
        "valid": int(valid),
        "why_invalid": why,
    }
    if data.get("tag") not in (None, job["tag"]):
        if run_values["reason"] is None:
            run_values["reason"] = f"measured by job {data['tag']}, which had the claim"
        return {"state": "cancelled", "reason": f"{CLAIMED_BY} {data['tag']}"}, run_values
    leaving = data.get("exit") or {}
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
        run_values,
    )


def settle(job: Job, found: JobReport, state: str, fail_class: str | None, grace_s: float) -> Ending | None:
    """The ending of a job that its scheduler calls over. None: wait for the record a little longer.

    A record counts more than the scheduler's word, but for what a head can't know: why it was told to end.
    """
    ended = from_record(job)
    if ended is not None:
        job_values, run_values = ended
        own = not str(job_values["reason"]).startswith(CLAIMED_BY)
        # FAILED only repeats the head's exit code, which in a ladder may be another run's
        knows = state not in ("done", "cancelled") and found.slurm_state != "FAILED"
        if own and run_values["state"] in TOLD_TO_END and knows:
            run_values |= {"state": state, "fail_class": fail_class}
            run_values["why_invalid"] = f"ended as {state}"
            job_values |= {"state": state}
        return job_values, run_values
    owner = claim(job)
    if owner is not None and owner.get("tag") not in (None, job["tag"]):
        return None  # another job of this attempt runs it: its record will say how it ended
    over_s = None if found.ended is None else age_s(found.ended)
    if owner is not None and over_s is not None and over_s < grace_s:
        return None
    if state == "done" and (over_s is None or over_s < grace_s):
        return None
    reason = found.reason or f"ended as {found.slurm_state} without a record"
    if state == "done":
        state, fail_class, reason = "failed", "unknown", "the job ended without a record; see its log"
    return without_record(state, fail_class, reason)


def without_record(state: str, fail_class: str | None, reason: str) -> Ending:
    """An ending nobody wrote down."""
    run_values = {"state": state, "fail_class": fail_class, "reason": reason, "valid": 0,
                  "why_invalid": f"ended as {state}"}  # fmt: skip
    return {"state": state, "reason": reason}, run_values


def validity(data: dict[str, Any], *, resumed: bool = False) -> tuple[bool, str | None]:
    """Whether a record may be used for scaling, and if not, why (contract section 2).

    The same rules and words as the view `runs` has (campaign/store/schema/views.sql). `resumed`: the attempt went on
    from another, although the record doesn't say so (`campaign.submit.resumed`).
    """
    reasons = []
    if data.get("state") != "done":
        reasons.append(f"ended as {data.get('state')}")
    elif not data.get("complete"):
        reasons.append("no complete record")
    if resumed or data.get("resumed_from") is not None:
        reasons.append("resumed: not done in one attempt")
    if (data.get("host") or {}).get("oversubscribed"):
        reasons.append("oversubscribed: more ranks than cores")
    planned = len(data.get("nodes") or []) * (data.get("ranks_per_node") or 0)
    met = data.get("world_size")
    if met is not None and planned and met != planned:
        reasons.append(f"the process group had {met} ranks, {planned} were started")
    return not reasons, "; ".join(reasons) or None
