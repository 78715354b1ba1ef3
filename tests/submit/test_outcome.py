"""How an attempt ended: the record first, Slurm second."""

from __future__ import annotations

import json
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
    return {"run_id": "ab" * 8, "attempt": 1, "tag": "c1", "submit_dir": str(tmp_path / "submit" / "c1"), **more}


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


def test_no_record_yet_is_waited_for_then_it_is_a_failure(tmp_path: Path) -> None:
    from campaign.submit.ledger import now

    assert settle(tmp_path, slurm("COMPLETED", ended=now()), "done") is None
    _, run_values = settle(tmp_path, slurm("COMPLETED", ended="2026-01-01T00:00:00Z"), "done")
    assert (run_values["state"], run_values["valid"], run_values["why_invalid"]) == ("failed", 0, "ended as failed")
    _, run_values = settle(tmp_path, slurm("CANCELLED by 0"), "cancelled")
    assert run_values["state"] == "cancelled"


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
