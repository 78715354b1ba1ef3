"""Planning again, as a user sees it: the same plan, what changed, what is left to run and what it costs."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cli

RANK = """
import os
from campaign.record import Recorder
recorder = Recorder.from_env()
recorder.world(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
recorder.epoch(0, epoch_time_s=1.0, steps=1, samples_seen=1, samples_unique=1)
"""


@pytest.fixture
def project(tmp_path: Path, cli: Cli) -> Path:
    folder = tmp_path / "p"
    cli("init", folder, code=0)
    (folder / "rank.py").write_text(RANK)
    write(folder)
    return folder


def write(folder: Path, **more: Any) -> None:
    study = {"schema": 1, "name": "s", "command": [sys.executable, "rank.py"], "axes": {"nodes": [1], "size": [1, 2]},
             "repeats": 1, "walltime": "00:05:00", "gate": False, **more}  # fmt: skip
    (folder / "studies" / "s.yaml").write_text(json.dumps(study))


def test_a_finished_plan_costs_nothing_more_and_says_so(project: Path, cli: Cli) -> None:
    first = cli("plan", "local", "--study", "s", cwd=project, code=0)
    assert "next: campaign submit --plan" in first.stdout
    cli("run", "local", "--study", "s", "--no-plots", cwd=project, code=0)
    again = cli("plan", "local", "--study", "s", cwd=project, code=0)
    assert "2 known from before, 2 of them done" in again.stdout
    assert "nothing left to run" in again.stdout
    assert "next: campaign status" in again.stdout
    data = cli("plan", "local", "--study", "s", "--json", cwd=project, code=0).json()["data"]
    assert (data["totals"]["can_run"], data["totals"]["to_run"], data["totals"]["node_h"]) == (2, 0, 0)


def test_diff_tells_what_changed_and_what_stays_valid(project: Path, cli: Cli) -> None:
    none = cli("plan", "local", "--study", "s", "--diff", cwd=project, code=0)
    assert "there is no older plan" in none.stderr
    cli("run", "local", "--study", "s", "--no-plots", cwd=project, code=0)
    same = cli("plan", "local", "--study", "s", "--diff", cwd=project, code=0)
    assert "nothing has changed" in same.stdout
    write(project, axes={"nodes": [1], "size": [2, 3]}, walltime="00:10:00")
    told = cli("plan", "local", "--study", "s", "--diff", cwd=project, code=0).stdout
    assert "studies/s.yaml has changed" in told
    assert "s on local: 1 new; 1 as before, 1 of them done and valid; 1 no longer planned (1 done, which stay" in told
    assert "s on local: walltime_s 00:05:00 -> 00:10:00 in 1 run" in told
    (older,) = re.findall("since plan ([0-9a-f]{12})", told)
    data = cli("plan", "local", "--study", "s", "--against", older, "--json", cwd=project, code=0).json()["data"]
    (count,) = data["diff"]["counts"]
    assert {name: count[name] for name in ("new", "same", "valid", "gone", "kept", "active")} == {
        "new": 1, "same": 1, "valid": 1, "gone": 1, "kept": 1, "active": 0,
    }  # fmt: skip


def test_a_plan_to_compare_with_may_be_named(project: Path, cli: Cli) -> None:
    first = cli("plan", "local", "--study", "s", "--json", cwd=project, code=0).json()["data"]["plan_id"]
    write(project, repeats=3)
    cli("plan", "local", "--study", "s", cwd=project, code=0)
    write(project, repeats=2)
    told = cli("plan", "local", "--study", "s", "--against", first[:6], cwd=project, code=0).stdout
    assert f"since plan {first} of" in told
    assert "s on local: 2 new; 2 as before" in told
    wrong = cli("plan", "local", "--study", "s", "--against", "zzz", cwd=project, code=2)
    assert "there is no plan 'zzz'" in wrong.stderr
