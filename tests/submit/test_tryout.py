"""What `campaign try` runs, where, and what it leaves; what is read of its record."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from campaign.errors import BadInput
from campaign.project import Project
from campaign.slurm.allocation import parse_allocation
from campaign.submit.tryout import Drawer, Request, plan_try
from tests.conftest import Cli, campaign_command
from tests.needs import needs
from tests.slurm.projects import make_project, study
from tests.slurm.testbed.settings import REPOSITORY
from tests.waiting import wait_for

STEPS = """
import os, sys, time
from campaign.record import Recorder
recorder = Recorder.from_env()
recorder.phase("imports_done")
rank = int(os.environ["RANK"])
recorder.world(rank, int(os.environ["WORLD_SIZE"]))
open(f"began.{rank}", "a").write(os.environ["CAMPAIGN_RUN_ID"] + "\\n")
try:
    for step in range(int(sys.argv[2])):
        if sys.argv[1] == "broken" and step == 3 and rank == 1:
            sys.exit("broken on purpose")
        recorder.step(0, step, samples=1, step_s=10.0 if step == 0 else 0.25 + 0.5 * (step % 2))
        if sys.argv[1] == "slow":
            time.sleep(0.1)
finally:
    open(f"finally.{rank}", "a").write("x")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The local site and studies of which the smallest point has two ranks."""
    for folder in ("sites", "studies"):
        (tmp_path / folder).mkdir()
    (tmp_path / "sites" / "local.yaml").write_text((REPOSITORY / "sites" / "local.yaml").read_text())
    (tmp_path / "steps.py").write_text(STEPS)
    for name in ("good", "broken", "slow"):
        write(tmp_path, name, ["python", "steps.py", name, "100000"])
    write(tmp_path, "short", ["python", "steps.py", "short", "4"])
    write(tmp_path, "silent", ["python", "-c", "print('no recorder')"])
    write(tmp_path, "endless", ["sleep", "600"], record={"term_grace_s": 0.1})
    return tmp_path


def write(project: Path, name: str, command: list[str], **more: Any) -> None:
    axes = {"ranks_per_node": [4, 2]}
    (project / "studies" / f"{name}.yaml").write_text(
        json.dumps({"schema": 1, "name": name, **study(command, axes=axes, repeats=3, gate=True), **more})
    )


def files(project: Path) -> set[str]:
    """What lies in the project, by path, without slots and byte code."""
    found = {path.relative_to(project).as_posix() for path in project.rglob("*") if path.is_file()}
    return {name for name in found if not re.search(r"slots/|__pycache__", name)}


# -- a try on this machine -------------------------------------------------------------------------------------------


def test_the_smallest_point_runs_for_a_few_steps_and_leaves_nothing(project: Path, cli: Cli) -> None:
    before = files(project)
    answer = cli("try", "good", "local", "--steps", "7", "--json", cwd=project, code=0).json()["data"]
    report = answer["report"]
    assert (answer["nodes"], answer["ranks_per_node"], answer["state"]) == (1, 2, "done")
    assert report["verdict"] == "it ran 7 steps and ended as asked"
    assert (report["ran"], report["came_up"], report["phase"], report["steps"]) == (True, True, "first_step", 7)
    # the first left out: 0.75 0.25 0.75 0.25 0.75 0.25
    assert report["median_step_s"] == 0.5
    names = [phase["name"] for phase in report["phases"]]
    assert names == ["job_start", "staged", "agents_up", "launched", "python_up", "imports_done", "first_step"]
    assert [phase["ranks"] for phase in report["phases"]] == [None] * 4 + [2] * 3
    times = [phase["t_s"] for phase in report["phases"]]
    assert times == sorted(times)
    assert answer["next"] == "campaign plan local --study good"
    assert (project / "finally.0").read_text() == (project / "finally.1").read_text() == "x"
    assert files(project) - before == {
        ".campaign/try/ledger.sqlite", ".campaign/try/turn.lock", "began.0", "began.1", "finally.0", "finally.1",
    }  # fmt: skip
    assert not (project / "runs" / "try").exists()


def test_a_try_is_no_measurement_and_runs_again(project: Path, cli: Cli) -> None:
    for _ in range(2):
        cli("try", "good", "local", "--steps", "2", "--keep", cwd=project, code=0)
    began = (project / "began.0").read_text().split()
    assert len(began) == 2
    assert len(set(began)) == 2
    assert len(list((project / "runs" / "try" / "runs").glob("*/*/a1/record.json"))) == 2
    assert cli("status", "--json", cwd=project, code=0).json()["data"]["groups"] == []
    cli("collect", "--rebuild", cwd=project, code=0)
    counted = cli("sql", "SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM epochs)", "--json", cwd=project,
                  code=0).json()["data"]["rows"]  # fmt: skip
    assert counted == [[0, 0]]


def test_a_step_limit_in_the_user_s_shell_cuts_no_measurement_short(project: Path, cli: Cli) -> None:
    words = ("--study", "short", "--set", "repeats=1", "--set", "ranks_per_node=2", "--no-plots")
    cli("run", "local", *words, cwd=project, env={"CAMPAIGN_MAX_STEPS": "1"}, code=0)
    rows = cli("sql", "SELECT count(*) FROM steps", "--json", cwd=project, code=0).json()["data"]["rows"]
    assert rows == [[4]]


def test_a_failed_try_shows_why_and_the_next_one_sweeps(project: Path, cli: Cli) -> None:
    result = cli("try", "broken", "local", cwd=project, code=1)
    assert "broken on purpose" in result.stdout
    assert "rank 1" in result.stderr
    assert "campaign try broken local" in result.stderr
    (kept,) = (project / "runs" / "try" / "runs").glob("*/*/a1/failed.log")
    assert str(kept.parent.parent) in result.stdout
    answer = cli("try", "broken", "local", "--json", cwd=project, code=1).json()
    report = answer["data"]["report"]
    assert (report["failed"]["rank"], report["failed"]["code"], report["fail_class"]) == (1, 1, "user")
    assert report["came_up"] is True
    assert report["lines"][-1] == "broken on purpose"
    assert not kept.exists()
    cli("try", "short", "local", cwd=project, code=0)
    assert not (project / "runs" / "try").exists()


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("short", "it ran to its own end, after 4 steps"),
        ("silent", "it ran to its own end; its program reports no steps (campaign.record.Recorder does)"),
        ("endless", "it ran until the time limit without failing; its program reports no steps"),
    ],
)
def test_programs_that_end_otherwise(project: Path, cli: Cli, name: str, verdict: str) -> None:
    limit = ("--walltime", "00:00:04") if name == "endless" else ()
    answer = cli("try", name, "local", *limit, "--json", cwd=project, code=0).json()["data"]
    assert answer["report"]["verdict"] == verdict
    assert answer["report"]["ran"] is True


def test_no_wait_and_then_the_same_command_goes_on_with_it(project: Path, cli: Cli) -> None:
    queued = cli("try", "slow", "local", "--steps", "10", "--no-wait", "--json", cwd=project, code=0).json()["data"]
    assert queued["report"] is None
    assert queued["next"] == "campaign try slow local --steps 10"
    wait_for((project / "finally.0").exists, what="the try has ended by itself")
    again = cli("try", "slow", "local", "--steps", "10", "--json", cwd=project, code=0).json()["data"]
    assert again["run_id"] == queued["run_id"]
    assert again["report"]["steps"] == 10
    assert (project / "began.0").read_text().split() == [queued["run_id"]]
    other = cli("try", "slow", "local", "--steps", "2", "--json", cwd=project, code=0).json()["data"]
    assert other["run_id"] != queued["run_id"]


@needs("torch", "zarr")
def test_ranks_of_a_distributed_training_end_together(project: Path, cli: Cli) -> None:
    """DDP over gloo, ended after the same step everywhere: no rank is left waiting, the group is left in order."""
    cli("data", "prepare", "hydrology", "--synthetic", "--cells", "8", "--years", "14", cwd=project, code=0)
    (project / "studies" / "ddp.yaml").write_text(json.dumps({
        "schema": 1, "name": "ddp", "workload": "training.workloads.hydrology", "scaling": "strong",
        "data": {"name": "hydrology_synthetic"}, "params": {"global_batch": 16, "hidden": 8, "epochs": 2},
        "axes": {"ranks_per_node": [2]}, "walltime": "00:05:00",
    }))  # fmt: skip
    answer = cli("try", "ddp", "local", "--steps", "4", "--keep", "--json", cwd=project, code=0).json()["data"]
    assert answer["report"]["verdict"] == "it ran 4 steps and ended as asked"
    assert (answer["report"]["phase"], answer["report"]["steps"]) == ("first_step", 4)
    console = Path(answer["records"], "a1", "console.log").read_text()
    assert "2 ranks on cpu" in console or "2 ranks on cuda" in console
    assert "destroy_process_group" not in console  # torch's warning about a group that nobody left


def test_ctrl_c_leaves_the_try_running(project: Path, cli: Cli) -> None:
    words = ["try", "slow", "local", "--steps", "40"]
    watching = subprocess.Popen(
        [campaign_command(), *words], cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for((project / "began.0").exists, what="its ranks have begun")
    watching.send_signal(signal.SIGINT)
    _, said = watching.communicate(timeout=60)
    assert watching.returncode == 130, said
    assert "campaign try slow local --steps 40  goes on watching it" in said
    report = cli(*words, "--json", cwd=project, code=0).json()["data"]["report"]
    assert report["verdict"] == "it ran 40 steps and ended as asked"
    assert len((project / "began.0").read_text().split()) == 1


# -- where it goes ---------------------------------------------------------------------------------------------------


def drawer(folder: Path, site: str, **more: Any) -> Drawer:
    make_project(folder, site, studies={"s": study(["true"], axes={"nodes": [8, 2, 4]}, **more)})
    return Drawer(Project(folder))


@pytest.mark.parametrize(
    ("site", "more", "place"),
    [
        ("juwels", {}, ("develbooster", 2, 600)),  # the first by size, and a name that says development
        ("juwels", {"resources": {"partition": "booster"}}, ("develbooster", 2, 600)),
        ("juwels", {"axes": {"nodes": [16]}}, ("booster", 16, 600)),  # four nodes at most in develbooster
        ("juwels", {"axes": {"nodes": [16], "partition": ["largebooster"]}}, ("largebooster", 16, 600)),
        ("vega", {}, ("gpu", 2, 600)),
        ("jupiter", {"walltime": "auto"}, ("booster", 2, 600)),
    ],
)
def test_the_partition_of_a_try(tmp_path: Path, site: str, more: dict[str, Any], place: tuple[str, int, int]) -> None:
    whole = {"axes": {"nodes": [8, 2, 4]}} | more
    make_project(tmp_path, site, studies={"s": study(["true"], **whole)})
    plan = plan_try(Drawer(Project(tmp_path)), Request("s", site, 20, {}))
    (run,) = plan.runs
    assert (run.partition, run.nodes, run.walltime_s) == place
    assert run.record["max_steps"] == 20
    assert (run.gate, run.pack, run.retry["infrastructure"]) == (False, "false", 0)


def test_a_shorter_limit_and_a_given_place(tmp_path: Path) -> None:
    made = drawer(tmp_path, "juwels", resources={"reservation": "mine"})
    path = tmp_path / "sites" / "juwels.yaml"
    path.write_text(
        path.read_text().replace('max_nodes: 4, max_time: "02:00:00"', 'max_nodes: 4, max_time: "00:05:00"')
    )
    (run,) = plan_try(made, Request("s", "juwels", 20, {})).runs
    assert (run.partition, run.walltime_s, run.reservation) == ("develbooster", 300, "mine")
    request = Request("s", "juwels", 20, {"nodes": "3"}, "booster", "other", "00:02:00")
    (run,) = plan_try(made, request).runs
    assert (run.partition, run.walltime_s, run.reservation, run.nodes) == ("booster", 120, "other", 3)
    with pytest.raises(BadInput, match="no partition `nowhere`"):
        plan_try(made, Request("s", "juwels", 20, {}, "nowhere"))


def test_a_cap_on_gpu_hours_holds_for_tries(tmp_path: Path, cli: Cli) -> None:
    """2 nodes x 4 GPUs x 10 min = 1.33 GPU-h."""
    make_project(tmp_path, "juwels", studies={"s": study(["true"], axes={"nodes": [2]})})
    config = json.loads((tmp_path / "campaign.yaml").read_text())
    (tmp_path / "campaign.yaml").write_text(json.dumps(config | {"caps": {"gpu_hours": 1}}))
    cli("plan", "juwels", "--study", "s", cwd=tmp_path, code=0)
    refused = cli("try", "s", cwd=tmp_path, code=2)
    assert "1.333 GPU-h" in refused.stderr
    assert "--walltime" in refused.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("good",), None),
        (("nothing", "local"), "there is no study `nothing`"),
        (("good", "nowhere"), "there is no site `nowhere`"),
        (("good", "local", "--set", "walltime=5"), "--walltime"),
        (("good", "local", "--set", "repeats=5"), "a try has its own repeats"),
        (("good", "local", "--set", "rank=5"), "nothing of the study is called `rank`"),
        (("good", "local", "--here"), "has no Slurm"),
        (("good", "local", "--here", "--no-wait"), "leave --no-wait away"),
        (("good", "local", "--walltime", "soon"), "walltime"),
        (("good", "local", "--steps", "0"), "--steps"),
    ],
)
def test_what_is_refused(project: Path, cli: Cli, words: tuple[str, ...], told: str | None) -> None:
    if told is None:
        (project / "sites" / "other.yaml").write_text(
            (REPOSITORY / "sites" / "local.yaml").read_text().replace("name: local", "name: other")
        )
        told = "campaign try STUDY local"
    refused = cli("try", *words, cwd=project, code=2)
    assert told in refused.stderr
    assert "Traceback" not in refused.stderr


# -- what scontrol says ----------------------------------------------------------------------------------------------

JOB = """JobId=1000001 JobName=interactive
   UserId=alice(1001) GroupId=users(100) MCS_label=N/A
   Priority=1 Nice=0 Account=demo QOS=normal
   JobState=RUNNING Reason=None Dependency=(null)
   SubmitTime=2026-11-30T19:54:04 EligibleTime=2026-11-30T19:54:04
   StartTime=2026-11-30T19:54:04 EndTime=2026-11-30T19:59:04 Deadline=N/A
   Partition=develbooster AllocNode:Sid=localhost:22741
   NodeList=jwb[0001-0003]
   NumNodes=3 NumCPUs=288 NumTasks=6 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   JOB_GRES=gpu:a100:9
     Nodes=jwb[0001-0002] CPU_IDs=0-95 Mem=488281 GRES=gpu:a100:4(IDX:0-3)
     Nodes=jwb0003 CPU_IDs=0-9,48,50-51 Mem=488281 GRES=gpu:a100:1(IDX:0)
   MinCPUsNode=2 MinMemoryNode=0 MinTmpDiskNode=0
   Features=(null) DelayBoot=00:00:00 Reservation=(null)
"""


def test_an_allocation_is_read() -> None:
    held = parse_allocation(JOB)
    assert held is not None
    assert (held.job_id, held.state, held.user, held.uid, held.gid) == ("1000001", "RUNNING", "alice", 1001, 100)
    assert (held.account, held.partition, held.qos, held.reservation) == ("demo", "develbooster", "normal", None)
    assert held.nodes == ("jwb0001", "jwb0002", "jwb0003")
    assert held.cpus == {"jwb0001": 96, "jwb0002": 96, "jwb0003": 13}
    assert held.gpus == {"jwb0001": 4, "jwb0002": 4, "jwb0003": 1}
    assert held.one_thread is False
    assert held.end is not None
    assert held.end.isoformat() == "2026-11-30T19:59:04+00:00"
    thread = parse_allocation(JOB.replace("=0:0:*:*", "=0:0:*:1"))
    assert thread is not None
    assert thread.one_thread is True
    assert parse_allocation("slurm_load_jobs error: Invalid job id specified\n") is None
    endless = parse_allocation(JOB.replace("EndTime=2026-11-30T19:59:04", "EndTime=Unknown"))
    assert endless is not None
    assert endless.left_s() is None
