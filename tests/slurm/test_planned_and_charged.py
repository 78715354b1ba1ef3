"""What a plan promises, on real Slurm: ladders on the same nodes, automatic walltimes, costs against sacct."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cli
from tests.needs import needs
from tests.slurm.projects import make_project, study
from tests.slurm.testbed import Cluster
from tests.waiting import wait_for

STEPS = """
import os, socket, sys, time
from campaign.record import Recorder
recorder = Recorder.from_env()
recorder.world(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
recorder.phase("first_step")
with open("order", "a") as file:
    if os.environ["RANK"] == "0":
        file.write(f"{os.environ['WORLD_SIZE']} {os.environ['SLURM_JOB_ID']} {time.time()}\\n")
with open(f"host-{os.environ['CAMPAIGN_RUN_ID']}-{os.environ['RANK']}", "w") as file:
    file.write(socket.gethostname())
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""


def _out(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def states(cli: Cli, project: Path) -> dict[str, int]:
    groups = cli("status", "--force", "--json", cwd=project, code=0).json()["data"]["groups"]
    return {name: count for group in groups for name, count in group["states"].items() if count}


def planned(cli: Cli, project: Path, *words: str) -> dict[str, Any]:
    """What `plan` says of the project's only study."""
    (file,) = (project / "studies").iterdir()
    answer = cli("plan", *words, "--study", file.stem, "--json", cwd=project, code=0)
    data: dict[str, Any] = answer.json()["data"]
    return data


def ladder(folder: Path, cluster: Cluster, *words: str, **more: Any) -> Path:
    axes = {"nodes": [1, 2, 4], "ranks_per_node": [1]}
    steps = study(["python", "steps.py", *words], axes=axes, repeats=2, pack="serial", walltime="00:02:00", **more)
    project = make_project(folder, cluster.name, studies={"steps": steps})
    (project / "steps.py").write_text(STEPS)
    return project


@needs("slurm")
def test_a_ladder_runs_in_one_allocation_on_the_same_nodes(cluster: Cluster, shared: Path, cli: Cli) -> None:
    project = ladder(shared / "p", cluster)
    plan = planned(cli, project, cluster.name)
    assert {run["allocation_nodes"] for run in plan["runs"]} == {4}
    cli("run", cluster.name, "--study", "steps", "--no-plots", cwd=project, code=0)
    rows = [line.split() for line in (project / "order").read_text().splitlines()]
    assert [int(size) for size, _, _ in rows] == [1, 2, 4, 1, 2, 4], "ABCABC"
    assert len({job for _, job, _ in rows}) == 1, "one allocation"
    hosts = {
        run["run_id"]: [(project / f"host-{run['run_id']}-{rank}").read_text() for rank in range(run["nodes"])]
        for run in plan["runs"]
    }
    largest = next(hosts[run["run_id"]] for run in plan["runs"] if run["nodes"] == 4)
    assert len(set(largest)) == 4
    for run in plan["runs"]:
        assert hosts[run["run_id"]] == largest[: run["nodes"]], "the first nodes of the same allocation"
    rows = cli("sql", "SELECT nodes, valid, state FROM runs", "--json", cwd=project, code=0).json()["data"]["rows"]
    assert {tuple(row.values()) if isinstance(row, dict) else tuple(row) for row in rows} == {
        (nodes, True, "done") for nodes in (1, 2, 4)
    }


@needs("slurm")
def test_a_ladder_whose_first_run_fails_by_its_own_fault_costs_one_run(
    cluster: Cluster, shared: Path, cli: Cli
) -> None:
    project = ladder(shared / "p", cluster, "3", gate=True)
    cli("run", cluster.name, "--study", "steps", "--no-plots", cwd=project, code=1)
    assert states(cli, project) == {"failed": 1, "interrupted": 5}
    assert len((project / "order").read_text().splitlines()) == 1
    shown = cli("status", "-v", "--json", cwd=project, code=0).json()["data"]["runs"]
    assert any("the first run of the ladder" in (run["reason"] or "") for run in shown)


@needs("slurm")
def test_planned_held_and_charged(cluster: Cluster, shared: Path, cli: Cli) -> None:
    """sacct is the oracle: what it says of the job is what `cost` says, in hours."""
    axes = {"nodes": [2], "ranks_per_node": [2]}
    command = ["python", "-c", "import time; time.sleep(4)"]
    project = make_project(shared / "p", cluster.name, studies={"s": study(command, axes=axes, repeats=2)})
    config = json.loads((project / "campaign.yaml").read_text())
    (project / "campaign.yaml").write_text(json.dumps(config | {"caps": {"gpu_hours": 1000}}))
    cli("run", cluster.name, "--study", "s", "--no-plots", cwd=project, code=0)

    def cost() -> dict[str, Any]:
        (one,) = cli("cost", "--json", cwd=project, code=0).json()["data"]["studies"]
        return dict(one)

    wait_for(lambda: cost()["charged_elements"] == 2, what=lambda: str(cost()))
    found = cost()
    # five minutes of two nodes with four GPUs each, twice
    assert found["planned_node_h"] == pytest.approx(2 * 2 * 5 / 60)
    assert found["planned_gpu_h"] == pytest.approx(2 * 2 * 4 * 5 / 60)
    said = _out(
        ["sacct", "-X", "-n", "-P", "-S", "now-1hours", "-o", "ElapsedRaw,AllocNodes,AllocCPUS,WorkDir,JobName"]
    )
    tags = {path.name for path in (project / "runs" / "submit").iterdir()}
    mine = [line.split("|") for line in said.splitlines() if line.split("|")[4] in tags]
    assert len(mine) == 2
    seconds = sum(int(row[0]) * int(row[1]) for row in mine)
    assert found["charged_node_h"] == pytest.approx(seconds / 3600)
    assert found["charged_gpu_h"] == pytest.approx(seconds * 4 / 3600)
    assert found["charged_cpu_h"] == pytest.approx(sum(int(row[0]) * int(row[2]) for row in mine) / 3600)
    assert 0 < found["held_node_h"] < found["planned_node_h"]
    plan = planned(cli, project, cluster.name, "--set", "repeats=3")
    assert plan["budget"]["spent_gpu_h"] == pytest.approx(found["charged_gpu_h"])
    assert plan["totals"]["to_run"] == 1
    assert plan["totals"]["gpu_h"] == pytest.approx(2 * 4 * 5 / 60)


@needs("slurm")
def test_an_automatic_walltime_follows_from_the_pilot(cluster: Cluster, shared: Path, cli: Cli) -> None:
    axes = {"nodes": [1, 2], "ranks_per_node": [1]}
    steps = study(["python", "steps.py"], axes=axes, walltime="auto", gate=True)
    project = make_project(shared / "p", cluster.name, studies={"steps": steps})
    (project / "steps.py").write_text(STEPS)
    first = planned(cli, project, cluster.name)
    assert first["totals"]["can_run"] == 1
    answer = cli("run", cluster.name, "--study", "steps", "--no-plots", cwd=project, code=0)
    assert states(cli, project) == {"done": 2}, str(answer)
    again = planned(cli, project, cluster.name)
    assert {run["walltime_s"] for run in again["runs"]} == {300}
    assert all("pilot" in run["walltime_why"] for run in again["runs"])
    tags = {path.name for path in (project / "runs" / "submit").iterdir()}

    def limits() -> dict[str, int]:
        """Minutes that each job asked for, by its nodes; sacct lags."""
        command = ["sacct", "-X", "-n", "-P", "-S", "now-1hours", "-o", "TimelimitRaw,AllocNodes,JobName"]
        rows = [line.split("|") for line in _out(command).splitlines()]
        return {row[1]: int(row[0]) for row in rows if row[2] in tags}

    wait_for(lambda: limits().keys() == {"1", "2"}, what=lambda: str(limits()))
    mine = limits()
    assert mine["2"] == 5, "minutes: what the pilot's time gives"
    assert mine["1"] > 5, "minutes: the default of the partition, or half an hour"


@needs("slurm")
def test_the_cap_holds_back_what_it_has_no_room_for(cluster: Cluster, shared: Path, cli: Cli) -> None:
    """Each run may cost 1/3 GPU-h (4 GPUs, 5 minutes): a cap of 0.7 lets two be queued at a time."""
    command = ["python", "-c", "import time; time.sleep(1)"]
    project = make_project(shared / "p", cluster.name, studies={"s": study(command, repeats=3)})
    config = json.loads((project / "campaign.yaml").read_text())
    (project / "campaign.yaml").write_text(json.dumps(config | {"caps": {"gpu_hours": 0.7}}))
    told = cli("plan", cluster.name, "--study", "s", cwd=project, code=0)
    assert "the plan may cost 1 GPU-h, and 0.7 of the project's cap are left" in told.stderr
    answer = cli("submit", "--json", cwd=project)
    assert answer.code == 3
    (problem,) = answer.json()["errors"]
    assert problem["key"] == "caps.gpu_hours"
    assert states(cli, project)["planned"] == 1
    # what the two don't use is room for the third
    cli("run", cluster.name, "--study", "s", "--no-plots", cwd=project)
    wait_for(lambda: states(cli, project) == {"done": 3}, what=lambda: str(states(cli, project)))
