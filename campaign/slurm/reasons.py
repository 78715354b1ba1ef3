"""Why a job is pending, in words: Slurm's reason codes as squeue prints them.

Source of the codes: squeue(1), JOB REASON CODES, and Slurm's page "Resource Limits" (job reasons), 22.05 to 25.05.
"""

from __future__ import annotations

import re
from typing import Final

REASONS: Final[dict[str, str]] = {
    "Resources": "waits for nodes to become free",
    "Priority": "waits behind jobs of higher priority",
    "Dependency": "waits for another job",
    "DependencyNeverSatisfied": "waits for a job that failed: it will never start; campaign cancel",
    "BeginTime": "its earliest start time hasn't come (after a requeue: two minutes)",
    "JobHeldUser": "is held: scontrol release JOB starts it",
    "JobHeldAdmin": "is held by an administrator of the site",
    "JobArrayTaskLimit": "waits for others of its own array (running_jobs)",
    "Licenses": "waits for a licence",
    "Reservation": "waits for its reservation to begin",
    "ReservationDeleted": "its reservation is gone: it will never start; campaign cancel",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition takes jobs but starts none",
    "PartitionNodeLimit": "asks for more or fewer nodes than the partition allows: it will never start",
    "PartitionTimeLimit": "asks for more time than the partition allows: it will never start",
    "NodeDown": "a node that it needs is down",
    "ReqNodeNotAvail": "a node that it asks for is down, drained or reserved",
    "BadConstraints": "no node has what it asks for: it will never start",
    "InvalidAccount": "the account is invalid: ask the site, then campaign cancel and plan with another",
    "InvalidQOS": "the QOS is invalid",
    "AccountNotAllowed": "the partition doesn't take this account",
    "QOSNotAllowed": "the partition or account doesn't take this QOS",
    "Cleaning": "is being cleaned up after a requeue",
    "Prolog": "its prolog is running",
    "JobLaunchFailure": "couldn't be launched: a bad path, file system or node",
    "job requeued in held state": "was requeued and is held: scontrol release JOB starts it",
    "launch failed requeued held": "couldn't be launched and is held: scontrol release JOB starts it",
    "SchedDefer": "the scheduler looks at it later",
    "FrontEndDown": "no front end is up",
    "MaxMemPerLimit": "asks for more memory than a limit allows",
    "DeadLine": "has missed its deadline",
    "AssocGrpGRES": "the account's share of GPUs is in use",
    "AssocGrpCPUMinutesLimit": "the account's CPU time is used up: ask for more, or wait for the next period",
    "AssocGrpBillingMinutes": "the account's budget is used up: ask for more, or wait for the next period",
    "AssocGrpBillingRunMinutes": "the account's running jobs use all that it may have promised at once",
    "AssocMaxJobsLimit": "the account runs as many jobs as it may",
    "MaxJobsPerAccount": "the account runs as many jobs as it may",
}

_PATTERNS: Final[tuple[tuple[str, str], ...]] = (
    (r"(QOS|Assoc)\w*Max(Submit)?Jobs?(Per(User|Account))?\w*Limit", "as many of your jobs as allowed are there"),
    (r"(QOS|Assoc)Grp\w*(Minutes|RunMinutes|Min|RunMin)\w*", "the time that the group may use is used up or promised"),
    (r"(QOS|Assoc)Grp\w*(Jobs|SubmitJobs)\w*", "the group has as many jobs as it may"),
    (r"(QOS|Assoc)Grp\w*", "the group's share of the machine is in use"),
    (r"(QOS|Assoc)Max\w*(WallDuration|Wall)\w*", "asks for more time than a limit allows: it will never start"),
    (r"(QOS|Assoc)Max\w*(Node|CPU|Cpu|GRES|Mem|Billing|TRES)\w*", "your jobs use as much at once as they may"),
    (r"(QOS|Assoc)Min\w*", "asks for less than a limit wants: it will never start"),
    (r"Nodes required for job are DOWN, DRAINED or reserved\b.*", "nodes that it needs are down, drained or reserved"),
)
"""Families of codes whose members differ in what is counted."""


def words(reason: str | None) -> str | None:
    """What a pending reason means; None when there is none or nobody knows it."""
    if not reason:
        return None
    code = reason.split(",")[0].split(" (")[0].strip().strip("()")
    if code in REASONS:
        return REASONS[code]
    return next((text for pattern, text in _PATTERNS if re.fullmatch(pattern, reason.strip("() ")) or
                 re.fullmatch(pattern, code)), None)  # fmt: skip
