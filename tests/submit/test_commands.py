"""`submit`, `status`, `show`, `retry` and `cancel` on this machine: what they take, and what they say of it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cli, campaign_command
from tests.slurm.testbed.settings import REPOSITORY
from tests.waiting import wait_for

WAITS = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.05)"
Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A project for this machine with one study `t` of one run: `make(program, **keys of the study)`."""

    def project(program: str, **more: Any) -> Path:
        folder = tmp_path / "p"
        for part in ("sites", "studies"):
            (folder / part).mkdir(parents=True)
        text = (REPOSITORY / "sites" / "local.yaml").read_text()
        # the scheduler is asked once, and then not again within any test
        text, count = re.subn(r"poll_interval_s: \d+", "poll_interval_s: 3600", text)
        assert count == 1
        (folder / "sites" / "local.yaml").write_text(text)
        study = {"schema": 1, "name": "t", "kind": "sweep", "scaling": "none", "params": {}, "repeats": 1,
                 "command": ["python", "-c", program], "axes": {"ranks_per_node": [1]}, "walltime": "00:05:00",
                 "gate": False, **more}  # fmt: skip
        (folder / "studies" / "t.yaml").write_text(json.dumps(study))
        return folder

    return project


def plan(cli: Cli, project: Path, *words: str) -> str:
    return str(cli("plan", "local", "--study", "t", *words, "--json", cwd=project, code=0).json()["data"]["plan_id"])


def states(cli: Cli, project: Path) -> dict[str, int]:
    (group,) = cli("status", "--force", "--json", cwd=project, code=0).json()["data"]["groups"]
    return {name: count for name, count in group["states"].items() if count}


def shown(cli: Cli, project: Path, run_id: str) -> dict[str, Any]:
    data: dict[str, Any] = cli("show", run_id, "--json", cwd=project, code=0).json()["data"]
    return data


def only_run(cli: Cli, project: Path) -> str:
    (run,) = cli("status", "--no-refresh", "-v", "--json", cwd=project, code=0).json()["data"]["runs"]
    return str(run["run_id"])


def test_older_plans_made_with_set_are_queued_only_when_asked_for(make: Make, cli: Cli) -> None:
    """Base, two explored points, and the newest plan: base and newest are queued, the two stay."""
    project = make("pass", walltime="00:06:00")
    plan(cli, project)
    first = plan(cli, project, "--set", "revision=first")
    second = plan(cli, project, "--set", "revision=second", "--set", "repeats=2")
    plan(cli, project, "--set", "revision=newest")
    assert states(cli, project) == {"planned": 5}
    told = cli("submit", "--json", cwd=project, code=0)
    answer = told.json()["data"]
    assert answer["queued"] == 2
    assert answer["explored"] == {"runs": 3, "plans": [second, first]}
    assert "3 runs of 2 older plans made with --set stay planned" in told.stderr
    # two runs of six minutes on one node
    assert "local: 2 runs, at most " in told.stderr
    assert "0.2 node-h" in told.stderr
    assert cli("submit", "--json", "--site", "local", cwd=project, code=0).json()["data"]["queued"] == 0
    assert cli("submit", "--json", "--plan", first, cwd=project, code=0).json()["data"]["queued"] == 1
    assert cli("submit", "--json", "--all", cwd=project, code=0).json()["data"]["queued"] == 2
    wait_for(lambda: states(cli, project) == {"done": 5}, what=lambda: str(states(cli, project)))


def test_watching_with_json_waits_and_prints_once(make: Make, cli: Cli) -> None:
    project = make(WAITS)
    plan(cli, project)
    cli("submit", cwd=project, code=0)
    command = [campaign_command(), "status", "--watch", "--force", "--json"]
    with subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, text=True) as watching:
        wait_for(lambda: states(cli, project) == {"running": 1}, what=lambda: str(states(cli, project)))
        assert watching.poll() is None
        (project / "go").touch()
        wait_for(lambda: states(cli, project) == {"done": 1}, what=lambda: str(states(cli, project)))
        stdout, _ = watching.communicate(timeout=60)
    answer = json.loads(stdout)
    assert (answer["data"]["active"], answer["data"]["groups"][0]["states"]["done"]) == (0, 1)


def test_a_final_record_decides_what_show_says(make: Make, cli: Cli) -> None:
    """The local queue was asked a moment ago and not again within the hour: the record on disk is newer."""
    project = make(WAITS)
    plan(cli, project)
    cli("submit", cwd=project, code=0)
    wait_for(lambda: states(cli, project) == {"running": 1}, what=lambda: str(states(cli, project)))
    (project / "go").touch()
    wait_for(lambda: list(project.glob("runs/runs/*/*/a1/record.json")), what="the record")
    answer = shown(cli, project, only_run(cli, project))
    assert (answer["run"]["state"], answer["run"]["valid"], answer["jobs"][0]["state"]) == ("done", True, "done")


def test_what_is_planned_again_has_no_ending(make: Make, cli: Cli) -> None:
    project = make("import sys; sys.exit(7)")
    plan(cli, project)
    cli("submit", cwd=project, code=0)
    wait_for(lambda: states(cli, project) == {"failed": 1}, what=lambda: str(states(cli, project)))
    run_id = only_run(cli, project)
    assert shown(cli, project, run_id)["run"]["valid"] is False
    cli("retry", "--run", run_id, cwd=project, code=0)
    run = shown(cli, project, run_id)["run"]
    assert [run[name] for name in ("state", "fail_class", "reason", "valid", "why_invalid")] == ["planned", *[None] * 4]
    text = cli("show", run_id, cwd=project, code=0).stdout
    assert re.search(r"^  try 1 +failed", text, re.MULTILINE)
    assert re.search(r"^  its exit +.*7", text, re.MULTILINE)
    assert not re.search(r"^  (valid|reason|exit) ", text, re.MULTILINE)


def test_runs_of_a_deleted_study_are_taken_out_as_the_hint_says(make: Make, cli: Cli) -> None:
    project = make("pass")
    plan(cli, project)
    (project / "studies" / "t.yaml").unlink()
    refused = cli("submit", "--json", cwd=project, code=2).json()
    (problem,) = refused["errors"]
    command = problem["hint"].split("  ")[0]
    assert command == "campaign cancel --study t"
    assert cli(*shlex.split(command)[1:], "--json", cwd=project, code=0).json()["data"]["planned"] == 1
    assert cli("submit", "--json", cwd=project, code=0).json()["data"]["queued"] == 0
