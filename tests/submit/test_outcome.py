"""How an attempt ended: the record first, Slurm second."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from campaign.slurm.queries import JobReport
from campaign.submit import outcome

GOOD: dict[str, Any] = {
    "state": "done", "complete": True, "resumed_from": None, "host": {"oversubscribed": False}, "nodes": ["a", "b"],
    "ranks_per_node": 2, "world_size": 4, "tag": "c1", "fail_class": None, "reason": None,
    "started": "2026-01-01T00:00:00Z", "ended": "2026-01-01T00:01:00Z",
    "exit": {"code": 0, "signal": None, "rank": None, "node": None},
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, None),
        ({"state": "timeout"}, "ended as timeout"),
        ({"complete": False}, "no complete record"),
        ({"resumed_from": 1}, "resumed: not done in one attempt"),
        ({"host": {"oversubscribed": True}}, "oversubscribed: more ranks than cores"),
        ({"world_size": 2}, "the process group had 2 ranks, 4 were started"),
        ({"world_size": None}, None),  # a command that has no process group
    ],
)
def test_what_makes_a_run_unfit_for_scaling(change: dict[str, Any], why: str | None) -> None:
    valid, reason = outcome.validity(GOOD | change)
    assert valid is (why is None)
    assert (reason is None) if why is None else (why in str(reason))


def job(tmp_path: Path, **more: Any) -> Any:
    """A job row as the ledger gives it, with its submit folder below `tmp_path`."""
    return {"run_id": "ab" * 8, "attempt": 1, "tag": "c1", "submit_dir": str(tmp_path / "submit" / "c1"),
            "over_since": None, **more}  # fmt: skip


def write_record(tmp_path: Path, **change: Any) -> None:
    folder = tmp_path / "runs" / "ab" / ("ab" * 8) / "a1"
    folder.mkdir(parents=True)
    (folder / "record.json").write_text(json.dumps(GOOD | change))


def slurm(state: str, **more: Any) -> JobReport:
    return JobReport("7", 0, "c1", state, "sacct", **more)


def settle(tmp_path: Path, found: JobReport, state: str, fail_class: str | None = None) -> Any:
    return outcome.settle(job(tmp_path), found, state, fail_class, 60.0)


def test_a_record_that_says_done_is_done_whatever_slurm_says(tmp_path: Path) -> None:
    """The inner srun or a job's exit code may be non-zero after a good run."""
    write_record(tmp_path)
    job_values, run_values = settle(tmp_path, slurm("FAILED"), "failed")
    assert (job_values["state"], run_values["state"], run_values["valid"]) == ("done", "done", 1)


def test_slurm_knows_a_node_failure_better_than_the_head(tmp_path: Path) -> None:
    write_record(tmp_path, state="cancelled")
    _, run_values = settle(tmp_path, slurm("NODE_FAIL"), "failed", "node")
    assert (run_values["state"], run_values["fail_class"]) == ("failed", "node")


def at(seconds: float) -> str:
    """A ledger time so many seconds from now."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@pytest.mark.parametrize(
    ("slurm_s", "ours_s", "waits"),
    [
        (0, None, True),
        (-90, -1, True),  # Slurm's clock is late
        (+900, -61, False),  # Slurm's clock is fast: it ended in our future, and a minute has passed here
        (-1800, None, True),  # half an hour may be a clock
        (-7200, None, False),  # two hours are not
    ],
)
def test_a_record_is_waited_for_by_our_own_clock(
    tmp_path: Path, slurm_s: float, ours_s: float | None, waits: bool
) -> None:
    row = job(tmp_path, over_since=None if ours_s is None else at(ours_s))
    ended = outcome.settle(row, slurm("COMPLETED", ended=at(slurm_s)), "done", None, 60.0)
    assert (ended is None) is waits
    if ended is not None:
        assert (ended[1]["state"], ended[1]["valid"], ended[1]["why_invalid"]) == ("failed", 0, "ended as failed")


def test_a_job_that_was_cancelled_before_it_began_waits_for_no_record(tmp_path: Path) -> None:
    _, run_values = settle(tmp_path, slurm("CANCELLED by 0"), "cancelled")
    assert run_values["state"] == "cancelled"


@pytest.mark.parametrize(
    ("data", "fail_class", "nodes"),
    [
        ({"nodes": ["n1", "n2", "n3"], "missing_nodes": ["n2"]}, "node", "n2"),
        ({"nodes": ["n1"], "missing_nodes": ["n2"]}, "node", "n2"),
        ({"nodes": ["n1"], "missing_nodes": ["n1"]}, "node", "n1"),
        ({"nodes": ["n1", "n2"], "missing_nodes": ["n1", "n2"]}, "node", None),  # no single one
        ({"nodes": ["n1", "n2"], "exit": {"node": "n2", "code": 1}}, "fabric", "n2"),
        ({"nodes": ["n1", "n2"], "exit": {"node": "n2", "code": 1}}, "user", None),
        ({"nodes": ["n1", "n2"], "missing_nodes": ["n2"]}, "preempted", None),
    ],
)
def test_which_nodes_a_record_points_to(data: dict[str, Any], fail_class: str, nodes: str | None) -> None:
    assert outcome.suspects(data, fail_class) == nodes


def test_a_node_that_took_the_head_with_it_is_the_first_one(tmp_path: Path) -> None:
    job_values, _ = settle(tmp_path, slurm("NODE_FAIL", nodelist="n[03-04]"), "failed", "node")
    assert job_values["failed_nodes"] == "n03"
    job_values, _ = settle(tmp_path, slurm("NODE_FAIL", nodelist="n[03,05,..."), "failed", "node")
    assert job_values["failed_nodes"] is None


def test_a_record_of_another_tag_means_somebody_else_ran_it(tmp_path: Path) -> None:
    write_record(tmp_path, tag="c2")
    job_values, run_values = settle(tmp_path, slurm("COMPLETED"), "done")
    assert job_values["state"] == "cancelled"
    assert (run_values["state"], run_values["valid"]) == ("done", 1)  # the record decides the run all the same


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_a_broken_record_is_no_record(tmp_path: Path, text: str) -> None:
    write_record(tmp_path)
    (tmp_path / "runs" / "ab" / ("ab" * 8) / "a1" / "record.json").write_text(text)
    assert outcome.from_record(job(tmp_path)) is None
