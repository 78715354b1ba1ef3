"""Every job state of Slurm's documentation, and the run state it means.

Source: the JOB STATE CODES sections of squeue(1) and sacct(1), Slurm 22.05 to 25.05. A test holds the table against
the states that the installed squeue names.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

RunState = Literal[
    "planned",
    "submitting",
    "queued",
    "running",
    "done",
    "failed",
    "timeout",
    "interrupted",
    "cancelled",
    "lost",
    "unknown",
]

RUN_STATES: Final[tuple[RunState, ...]] = get_args(RunState)

FINAL: Final[frozenset[str]] = frozenset({"done", "failed", "timeout", "interrupted", "cancelled", "lost"})
"""A run in one of these changes only when somebody asks for a new attempt."""

ACTIVE: Final[frozenset[str]] = frozenset({"submitting", "queued", "running", "unknown"})
"""A job may exist for a run in one of these."""

_QUEUED = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT")
_RUNNING = ("RUNNING", "COMPLETING", "STAGE_OUT", "SIGNALING", "SUSPENDED", "STOPPED", "RESIZING", "EXPEDITING")

SLURM_STATES: Final[dict[str, tuple[RunState, str | None]]] = {
    **dict.fromkeys(_QUEUED, ("queued", None)),
    **dict.fromkeys(_RUNNING, ("running", None)),
    "COMPLETED": ("done", None),
    "FAILED": ("failed", None),
    "TIMEOUT": ("timeout", None),
    "DEADLINE": ("timeout", None),
    "CANCELLED": ("cancelled", None),
    "REVOKED": ("cancelled", None),
    "PREEMPTED": ("interrupted", "preempted"),
    "NODE_FAIL": ("failed", "node"),
    "BOOT_FAIL": ("failed", "node"),
    "LAUNCH_FAILED": ("failed", "node"),
    "RECONFIG_FAIL": ("failed", "node"),
    "POWER_UP_NODE": ("queued", None),
    "UPDATE_DB": ("running", None),
    "OUT_OF_MEMORY": ("failed", "oom_host"),
}
"""Slurm state -> (run state, fail_class if the state alone tells it)."""

SACCT_ENDED: Final = (
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
    "TIMEOUT",
)  # fmt: skip
"""States in which a job has ended, by names that every sacct since 17.11 takes."""


def run_state(slurm_state: str) -> tuple[RunState, str | None]:
    """What a Slurm state means for a run; `CANCELLED by 0` and `COMPLETING+` forms included; unlisted: unknown."""
    word = slurm_state.strip().split(" ")[0].rstrip("+").upper()
    return SLURM_STATES.get(word, ("unknown", None))
