"""How an attempt ended: its record first, the scheduler second."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from sqlite3 import Row
from typing import Any

from campaign.job.spec import run_folder
from campaign.slurm.nodelist import expand
from campaign.slurm.queries import JobReport
from campaign.slurm.states import FINAL
from campaign.submit.ledger import age_s
from campaign.submit.resumed import went_on

TOLD_TO_END = frozenset({"cancelled", "interrupted"})
"""What a head writes that was told to end and can't know why: a time limit, a lost node, a preemption or a user."""

CLAIMED_BY = "claimed by"

CLOCK_MARGIN_S = 3600.0
"""So much may Slurm's clock differ from ours before its times mislead us."""

SUSPECT = frozenset({"node", "fabric"})
"""Failures that point to a machine."""

INFRASTRUCTURE = SUSPECT | {"preempted"}
"""Failures that are tried again by themselves."""

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
            "fail_class": data.get("fail_class"),
            "failed_nodes": suspects(data, data.get("fail_class")),
        },
        run_values,
    )


def suspects(data: dict[str, Any], fail_class: str | None) -> str | None:
    """Nodes that a record points to, separated by commas: those that fell silent, else the failing rank's."""
    if fail_class not in SUSPECT:
        return None
    silent = data.get("missing_nodes") or []
    all_nodes = {*silent, *(data.get("nodes") or [])}
    if silent and (len(silent) < len(all_nodes) or len(all_nodes) == 1):
        return ",".join(silent)
    # where nothing came from any node it was no single one that broke
    return (data.get("exit") or {}).get("node")


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
            nodes = suspects(record(job) or {}, fail_class)
            job_values |= {"state": state, "fail_class": fail_class, "failed_nodes": nodes}
        return job_values, run_values
    owner = claim(job)
    if owner is not None and owner.get("tag") not in (None, job["tag"]):
        return None  # another job of this attempt runs it: its record will say how it ended
    # of a local job everything is seen here and now
    if found.source != "local" and (owner is not None or state == "done") and _over_s(job, found) < grace_s:
        return None
    reason = _without(found)
    if state == "done":
        state, reason = "failed", "the job ended without a record; see its log"
    if state == "failed" and fail_class is None:
        fail_class = "unknown"
    return without_record(state, fail_class, reason, failed_nodes=_lost_first(found, fail_class))


def _without(found: JobReport) -> str:
    """How a job ended that left no record. sacct's Reason isn't it: that is why the job last had to wait."""
    how = [f"exit code {found.exit_code}"] if found.exit_code and not found.signal else []
    how += [f"signal {found.signal}"] if found.signal else []
    how += [found.reason] if found.reason and found.source == "squeue" else []
    return f"ended as {found.slurm_state} without a record" + (f" ({', '.join(how)})" if how else "")


def _over_s(job: Job, found: JobReport) -> float:
    """For how long a job has been over: by our own clock since a query first said so, or by Slurm's if that is long."""
    ours = 0.0 if job["over_since"] is None else age_s(job["over_since"])
    slurms = 0.0 if found.ended is None else age_s(found.ended) - CLOCK_MARGIN_S
    return max(ours, slurms)


def _lost_first(found: JobReport, fail_class: str | None) -> str | None:
    """The suspect of a job that was lost with a node and left no record: its head ran on the first one."""
    if fail_class != "node" or not found.nodelist:
        return None
    with contextlib.suppress(ValueError):  # a list that was cut
        return next(iter(expand(found.nodelist)), None)
    return None


def without_record(state: str, fail_class: str | None, reason: str, *, failed_nodes: str | None = None) -> Ending:
    """An ending nobody wrote down."""
    run_values = {"state": state, "fail_class": fail_class, "reason": reason, "valid": 0,
                  "why_invalid": f"ended as {state}"}  # fmt: skip
    job_values = {"state": state, "reason": reason, "fail_class": fail_class, "failed_nodes": failed_nodes}
    return job_values, run_values


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
