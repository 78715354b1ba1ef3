"""A whole campaign on this machine through the command line, as a user would run it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cli, campaign_command
from tests.slurm.testbed.settings import REPOSITORY
from tests.waiting import wait_for

TALLY = """
import os, sys, time
from campaign.record import Recorder
with open("tally", "a") as file:
    file.write(os.environ["CAMPAIGN_RUN_ID"] + " " + os.environ["CAMPAIGN_ATTEMPT"] + "\\n")
recorder = Recorder.from_env()
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
recorder.world(rank, size)
for epoch in range(3):
    recorder.epoch(
        epoch, epoch_time_s=8.0 / size, steps=4, samples_seen=16 // size, samples_unique=16, warmup=epoch == 0
    )
print("rank", rank, "done")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with the starter's local site and one study that costs nothing."""
    (tmp_path / "sites").mkdir()
    (tmp_path / "studies").mkdir()
    (tmp_path / "sites" / "local.yaml").write_text((REPOSITORY / "sites" / "local.yaml").read_text())
    write_study(tmp_path)
    (tmp_path / "tally.py").write_text(TALLY)
    return tmp_path


def write_study(project: Path, **more: Any) -> None:
    study = {"schema": 1, "name": "tally", "kind": "sweep", "command": ["python", "tally.py"], "scaling": "strong",
             "params": {"global_batch": 16}, "axes": {"nodes": [1], "ranks_per_node": [1, 2]}, "repeats": 2,
             "walltime": "00:05:00", **more}  # fmt: skip
    (project / "studies" / "tally.yaml").write_text(json.dumps(study))


def tally(project: Path) -> list[str]:
    """Run ids in the order in which ranks 0 of them began, one line per rank."""
    path = project / "tally"
    return path.read_text().split("\n")[:-1] if path.exists() else []


def test_from_a_site_file_to_an_answer(project: Path, cli: Cli) -> None:
    done = cli("run", "sites/local.yaml", "--study", "tally", "--no-plots", cwd=project, code=0)
    assert len(tally(project)) == 2 * 1 + 2 * 2  # two repeats of one rank, two of two ranks
    assert "tally" in done.stdout
    sql = "SELECT site, world_size, n, epoch_time_s, speedup, efficiency FROM scaling ORDER BY world_size"
    answer = cli("sql", sql, "--json", cwd=project, code=0).json()["data"]
    assert answer["rows"] == [["local", 1, 2, 8.0, 1.0, 1.0], ["local", 2, 2, 4.0, 2.0, 1.0]]
    status = cli("status", "--json", cwd=project, code=0).json()["data"]
    assert status["groups"][0]["states"]["done"] == 4
    again = cli("run", "sites/local.yaml", "--study", "tally", "--no-plots", cwd=project, code=0)
    assert "4 of 4 runs are already measured" in again.stderr
    assert len(tally(project)) == 6  # nothing ran twice


def test_show_and_logs_of_a_run(project: Path, cli: Cli) -> None:
    write_study(project, axes={"ranks_per_node": [2]}, repeats=1)
    cli("run", "sites/local.yaml", "--study", "tally", "--no-plots", cwd=project, code=0)
    (run,) = cli("status", "-v", "--json", cwd=project, code=0).json()["data"]["runs"]
    shown = cli("show", run["run_id"][:5], "--json", cwd=project, code=0).json()["data"]
    assert shown["record"]["world_size"] == 2
    assert [epoch["warmup"] for epoch in shown["epochs"]] == [True, False, False]
    assert "rank 0 done" in cli("logs", run["run_id"][:5], cwd=project, code=0).stdout
    assert run["run_id"] in cli("show", run["run_id"], cwd=project, code=0).stdout


def test_a_failing_gate_holds_the_rest_until_it_is_mended(project: Path, cli: Cli) -> None:
    good = (project / "tally.py").read_text()
    (project / "tally.py").write_text("raise SystemExit('a typo')\n")
    failed = cli("run", "sites/local.yaml", "--study", "tally", "--no-plots", cwd=project, code=1)
    assert "3 runs held" in failed.stderr
    states = cli("status", "--json", cwd=project, code=0).json()["data"]["groups"][0]["states"]
    assert (states["failed"], states["planned"]) == (1, 3)
    (project / "tally.py").write_text(good)
    cli("retry", "--all", cwd=project, code=0)
    cli("run", "sites/local.yaml", "--study", "tally", "--no-plots", cwd=project, code=0)
    states = cli("status", "--json", cwd=project, code=0).json()["data"]["groups"][0]["states"]
    assert states["done"] == 4


def test_ctrl_c_stops_the_watching_and_not_the_runs(project: Path, cli: Cli) -> None:
    slow = TALLY + "import pathlib\nwhile not pathlib.Path('go').exists(): time.sleep(0.05)\n"
    (project / "tally.py").write_text(slow)
    command = [campaign_command(), "run", "sites/local.yaml", "--study", "tally", "--no-plots"]
    watching = subprocess.Popen(command, cwd=project, start_new_session=True, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: tally(project), what="the first rank has begun")
    os.killpg(watching.pid, signal.SIGINT)  # what a terminal does: the whole foreground group
    _, stderr = watching.communicate(timeout=60)
    assert watching.returncode == 130, stderr
    status = cli("status", "--json", cwd=project, code=0).json()["data"]
    assert status["groups"][0]["states"]["running"] == 1
    (project / "go").touch()
    cli("run", "sites/local.yaml", "--study", "tally", "--no-plots", cwd=project, code=0)
    lines = tally(project)
    assert len(lines) == 6
    assert len(set(lines)) == 4


def test_cancel_ends_a_running_run_and_takes_out_the_planned(project: Path, cli: Cli) -> None:
    (project / "tally.py").write_text(TALLY + "time.sleep(600)\n")
    cli("plan", "sites/local.yaml", "--study", "tally", cwd=project, code=0)
    cli("submit", cwd=project, code=0)
    wait_for(lambda: tally(project), what="the first rank has begun")
    answer = cli("cancel", "--all", "--json", cwd=project, code=0).json()["data"]
    assert answer == {"jobs": 1, "planned": 3, "given_up": 0}

    def states() -> dict[str, int]:
        counts: dict[str, int] = cli("status", "--json", cwd=project, code=0).json()["data"]["groups"][0]["states"]
        return counts

    wait_for(lambda: states()["cancelled"] == 4, what=lambda: str(states()))


def test_a_killed_queue_loses_no_run(project: Path, cli: Cli) -> None:
    """SIGKILL to the local queue and its head: what ran is told, what waited can be run again, nothing runs twice."""
    (project / "tally.py").write_text(
        TALLY + "import pathlib\nwhile not pathlib.Path('go').exists(): time.sleep(0.05)\n"
    )
    write_study(project, gate=False)
    cli("plan", "sites/local.yaml", "--study", "tally", cwd=project, code=0)
    cli("submit", cwd=project, code=0)
    wait_for(lambda: tally(project), what="the first rank has begun")
    for pid in ours(project):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not ours(project), what=lambda: f"all processes are gone: {ours(project)}")
    states = cli("status", "--json", cwd=project, code=0).json()["data"]["groups"][0]["states"]
    assert states["failed"] == 1
    assert states["cancelled"] == 3
    (project / "go").touch()
    cli("retry", "--all", cwd=project, code=0)
    cli("run", "sites/local.yaml", "--study", "tally", "--no-plots", cwd=project, code=0)
    assert len(set(tally(project))) == 5  # four runs, one of them in two attempts


def ours(project: Path) -> list[int]:
    """Pids of queues and heads of this project (not of ranks: they must go by themselves)."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            zombie = "\nState:\tZ" in (entry / "status").read_text()
        except OSError:
            continue
        if str(project).encode() in command and not zombie and b"campaign" in command:
            found.append(int(entry.name))
    return found


def test_a_changed_study_is_refused_until_it_is_planned_again(project: Path, cli: Cli) -> None:
    cli("plan", "sites/local.yaml", "--study", "tally", cwd=project, code=0)
    write_study(project, repeats=1, axes={"ranks_per_node": [1]})
    refused = cli("submit", cwd=project, code=2)
    assert "has changed since the plan" in refused.stderr
    assert not tally(project)
    cli("plan", "sites/local.yaml", "--study", "tally", cwd=project, code=0)
    cli("run", "sites/local.yaml", "--study", "tally", "--no-plots", cwd=project, code=0)
    assert len(tally(project)) == 1


def test_a_plan_of_which_nothing_can_run_is_bad_input(project: Path, cli: Cli) -> None:
    write_study(project, axes={"nodes": [64]})
    refused = cli("run", "sites/local.yaml", "--study", "tally", cwd=project, code=2)
    assert "nodes" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_rebuild_never_costs_the_last_copy(project: Path, cli: Cli) -> None:
    """The run root is away (not mounted, purged): the store keeps what it knows, unless the user says otherwise."""
    write_study(project, axes={"ranks_per_node": [1]}, repeats=1)
    cli("run", "sites/local.yaml", "--study", "tally", "--no-plots", cwd=project, code=0)
    (project / "runs" / "runs").rename(project / "away")
    refused = cli("collect", "--rebuild", cwd=project, code=2)
    assert "no longer on disk" in refused.stderr
    count = ("sql", "SELECT count(*) FROM epochs", "--no-collect", "--json")
    assert cli(*count, cwd=project, code=0).json()["data"]["rows"] == [[3]]
    cli("collect", "--rebuild", "--force", cwd=project, code=0)
    assert cli(*count, cwd=project, code=0).json()["data"]["rows"] == [[0]]


def test_two_projects_with_one_run_root_measure_a_run_once(project: Path, tmp_path_factory: Any, cli: Cli) -> None:
    write_study(project, axes={"ranks_per_node": [1]}, repeats=1)
    second = tmp_path_factory.mktemp("second")
    for folder in ("sites", "studies"):
        (second / folder).mkdir()
        for path in (project / folder).iterdir():
            (second / folder / path.name).write_text(path.read_text())
    (second / "tally.py").write_text(TALLY)
    (second / "campaign.yaml").write_text(
        json.dumps({"schema": 1, "paths": {"local": {"run_root": str(project / "runs")}}})
    )
    cli("run", "sites/local.yaml", "--study", "tally", "--no-plots", cwd=project, code=0)
    answer = cli("run", "sites/local.yaml", "--study", "tally", "--no-plots", cwd=second, code=0)
    assert len(tally(project)) == 1
    assert not tally(second)
    assert "which had the claim" in answer.stderr


def test_ctrl_c_in_a_long_query_is_130(project: Path, cli: Cli) -> None:
    cli("plan", "sites/local.yaml", "--study", "tally", cwd=project, code=0)
    cli("collect", cwd=project, code=0)
    query = "SELECT count(*) FROM range(100000000000) t(i) WHERE hash(i) % 7 = 3"
    command = [campaign_command(), "sql", "--no-collect", query]
    asking = subprocess.Popen(command, cwd=project, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def counting() -> bool:
        ticks = Path(f"/proc/{asking.pid}/stat").read_text().rpartition(")")[2].split()
        return int(ticks[11]) > 300  # three seconds of CPU: start-up is over

    wait_for(counting, what="the query runs")
    asking.send_signal(signal.SIGINT)
    _, stderr = asking.communicate(timeout=60)
    assert asking.returncode == 130, stderr
    assert "Traceback" not in stderr
