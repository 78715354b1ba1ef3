"""What a figure calls the work, and whether two sites did the same."""

from __future__ import annotations

import dataclasses
import json

import pytest

from analysis import work
from analysis.rows import RunPoint

POINT = RunPoint(
    run_id="0" * 16, site="juwels", study="s", series="", strategy=None, world_size=1, repeat=0, valid=True,
    why_invalid=None, workload=None, params={}, global_batch=256, local_batch=None, epoch_time_s=1.0,
    throughput_per_s=None,
)  # fmt: skip


def point(workload: str | list[str], site: str = "juwels") -> RunPoint:
    """A run of this workload or argv, as the store has it."""
    text = workload if isinstance(workload, str) else json.dumps(workload)
    return dataclasses.replace(POINT, workload=text, site=site)


@pytest.mark.parametrize(
    ("workload", "name"),
    [
        ("training.workloads.hydrology", "hydrology"),
        (["python", "train.py", "--lr", "0.001"], "train.py"),
        (["/p/venv/bin/python3.11", "-u", "-X", "faulthandler", "src/v1.2/train.py", "--out", "a.b"], "train.py"),
        (["python", "-m", "my.training.main", "--lr={lr}"], "my.training.main"),
        (["python", "-c", "print(1.5)"], "python"),
        (["python3"], "python3"),
        (["/opt/bin/gmx_mpi", "mdrun", "-s", "a.tpr"], "gmx_mpi"),
        (["bash", "jobs/run.sh", "1"], "run.sh"),
        (["bash", "-c", "echo a.b"], "bash"),
        (["sleep", "{seconds}"], "sleep"),
    ],
)
def test_a_command_is_called_by_its_program(workload: str | list[str], name: str) -> None:
    assert work.describe([point(workload)]) == f"{name}, global batch 256"


def test_another_interpreter_is_the_same_work_and_other_arguments_are_not() -> None:
    here = point(["/p/juwels/bin/python", "train.py", "--lr", "0.1"])
    same, sentence = work.compare([here, point(["python3", "train.py", "--lr", "0.1"], "vega")], [])
    assert same
    assert sentence.startswith("The same work on every site: train.py, ")
    same, sentence = work.compare([here, point(["python3", "train.py", "--lr", "0.2"], "vega")], [])
    assert not same
    assert "arguments --lr 0.1 (juwels), --lr 0.2 (vega)" in sentence
