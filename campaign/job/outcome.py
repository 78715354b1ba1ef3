"""How an attempt ended, decided from what was seen. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from campaign.job.classify import FailClass, Failure, State, describe, fail_class, scheduler_class

NO_EXIT: dict[str, Any] = {"code": None, "signal": None, "rank": None, "node": None}


@dataclass(frozen=True, slots=True)
class Stop:
    """Why the head ended the run before its ranks did."""

    kind: str
    """deadline | term | interrupt | hang | node | rank."""
    reason: str
    fail_class: FailClass | None = None
    t_us: int | None = None
    """When a node was lost, since job_start."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """State of the attempt, as in the record."""

    state: State
    fail_class: FailClass | None
    reason: str | None
    exit: dict[str, Any]


def decide(
    stop: Stop | None,
    culprit: Failure | None,
    *,
    ranks_done: bool,
    missing_nodes: Sequence[str],
    scheduler_lines: Sequence[str],
    lagging: str | None = None,
) -> Outcome:
    """The outcome.

    stop: why the head ended it; None when it did not. culprit: the rank that failed first, before it was told to end.
    ranks_done: every rank ended with code 0. missing_nodes: nodes whose last data did not come. lagging: the rank that
    was furthest behind.
    """
    ending = _exit(culprit)
    said = scheduler_class(scheduler_lines)
    if stop is not None and (stop.kind != "node" or culprit is None) and stop.kind != "rank":
        return Outcome(*_stopped(stop, said, missing_nodes, lagging), ending)
    if culprit is not None:
        kind = fail_class(culprit)
        # a kill whose reason only Slurm knows
        return Outcome("failed", said if kind == "unknown" and said else kind, describe(culprit), ending)
    if ranks_done:
        return Outcome("done", None, None, NO_EXIT | {"code": 0})
    return Outcome("failed", said or "unknown", "the ranks ended without saying how", ending)


def _stopped(
    stop: Stop, said: FailClass | None, missing_nodes: Sequence[str], lagging: str | None
) -> tuple[State, FailClass | None, str]:
    """State, class and reason of a run that the head ended."""
    lost = said == "node" or (missing_nodes and said is None)
    if stop.kind == "deadline":
        answer: tuple[State, FailClass | None, str] = ("timeout", None, stop.reason)
    elif stop.kind == "interrupt":
        answer = ("interrupted", None, stop.reason)
    elif stop.kind == "term" and said == "preempted":
        answer = ("interrupted", "preempted", stop.reason)
    elif stop.kind == "term" and lost:
        answer = ("failed", "node", f"{', '.join(missing_nodes) or 'a node'} was lost: {stop.reason}")
    elif stop.kind == "term":
        answer = ("cancelled", None, stop.reason)
    else:
        reason = f"{stop.reason}; {lagging}" if lagging and stop.kind == "hang" else stop.reason
        answer = ("failed", stop.fail_class or said or "unknown", reason)
    return answer


def _exit(culprit: Failure | None) -> dict[str, Any]:
    if culprit is None:
        return dict(NO_EXIT)
    return {"code": culprit.code, "signal": culprit.signal, "rank": culprit.rank, "node": culprit.node}
