"""`campaign try` on the three clusters: through the queue, and inside an allocation with `--here`."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cli, campaign_command
from tests.needs import needs
from tests.slurm.projects import make_project, study
from tests.slurm.testbed import Cluster, Testbed
from tests.waiting import wait_for

STEPS = """
import json, os, sys, time
from campaign.record import Recorder
recorder = Recorder.from_env()
rank = int(os.environ["RANK"])
recorder.world(rank, int(os.environ["WORLD_SIZE"]))
print("ENV " + json.dumps(dict(os.environ)), flush=True)
for step in range(100000):
    if "broken" in sys.argv and step == 3 and rank == 5:
        sys.exit("broken on purpose")
    recorder.step(0, step, samples=1, step_s=0.5)
    if "slow" in sys.argv:
        open("began", "a").close()
        time.sleep(0.05)
"""
TWO_BY_FOUR = {"nodes": [4, 2], "ranks_per_node": [4]}

HOSTILE = {
    "SLURM_NTASKS": "64", "SLURM_NPROCS": "64", "SLURM_CPUS_PER_TASK": "1", "SLURM_NTASKS_PER_NODE": "8",
    "SLURM_NNODES": "7", "SLURM_JOB_NUM_NODES": "7", "SLURM_JOB_NODELIST": "nope", "SLURM_JOB_CPUS_PER_NODE": "1",
    "SLURM_CPU_BIND": "map_cpu:0", "SLURM_MEM_PER_CPU": "1", "SLURM_EXPORT_ENV": "NONE", "SLURM_EXACT": "1",
    "SLURM_DISTRIBUTION": "cyclic", "SLURM_HINT": "nomultithread", "SLURM_PROCID": "5", "SLURM_STEP_ID": "3",
    "SLURM_LOCALID": "9", "SLURM_NODEID": "9", "SRUN_EXPORT_ENV": "NONE", "SRUN_CPUS_PER_TASK": "1",
    "SBATCH_PARTITION": "nope", "SBATCH_TIMELIMIT": "1", "PMI_RANK": "7", "PMIX_RANK": "7",
    "SLURM_GPUS_PER_TASK": "1", "SLURM_TRES_PER_TASK": "gres:gpu:1", "CUDA_VISIBLE_DEVICES": "7",
    "ROCR_VISIBLE_DEVICES": "7", "CAMPAIGN_MAX_STEPS": "1",
}  # fmt: skip

MAY_DIFFER = {
    # who it is
    "CAMPAIGN_RUN_ID", "SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_NAME", "MASTER_PORT",
    # sbatch makes an array of one; the allocation may have more CPUs than the run asks for
    "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MAX",
    "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_STEP", "SLURM_JOB_CPUS_PER_NODE",
    "SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0",
    # one shell more
    "SHLVL",
}  # fmt: skip
"""All in which a rank's environment with `--here` differs from that of the same run sent by sbatch."""


def project_with(folder: Path, site: str, **more: Any) -> Path:
    studies = {
        name: study(["python", "steps.py", name], axes=TWO_BY_FOUR, **more) for name in ("good", "broken", "slow")
    }
    project = make_project(folder, site, studies=studies)
    (project / "steps.py").write_text(STEPS)
    return project


def in_allocation(cluster: Cluster, project: Path, options: list[str], *lines: str) -> str:
    """What `lines` print in the shell of a salloc; `campaign` there is the one that is tested."""
    script = project.parent / "in-salloc.sh"
    script.write_text("\n".join([f'campaign() {{ {shlex.quote(campaign_command())} "$@"; }}', *lines]) + "\n")
    command = ["salloc", "--quiet", "--account=demo", "--time=10", *options, "bash", str(script)]
    return cluster.run(*command, cwd=project, check=False).stdout


def environment(answer: dict[str, Any]) -> dict[str, str]:
    """What rank 0 of a kept try saw, with the run's own folder by name."""
    console = Path(answer["data"]["records"], "a1", "console.log").read_text()
    seen: dict[str, str] = json.loads(console.split("ENV ")[1].splitlines()[0])
    folder = str(Path(seen["CAMPAIGN_RANK_DIR"]).parent)
    return {name: value.replace(folder, "FOLDER") for name, value in seen.items()}


PARTITION = {"juwels": "develbooster", "vega": "gpu", "jupiter": "booster"}
"""Where tries go. Vega's site file knows no partition for development."""


@needs("slurm")
@pytest.mark.parametrize("cluster", ["juwels", "vega", "jupiter"], indirect=True)
def test_a_try_here_sees_what_a_queued_one_sees(cluster: Cluster, shared: Path, cli: Cli) -> None:
    """Two nodes of an allocation of three, from a shell with every kind of job and step variable in it."""
    project = project_with(shared / "p", cluster.name)
    queued = cli("try", "good", cluster.name, "--steps", "5", "--keep", "--json", cwd=project, code=0).json()
    data = queued["data"]
    assert (data["partition"], data["nodes"], data["walltime_s"]) == (PARTITION[cluster.name], 2, 600)
    assert data["report"]["verdict"] == "it ran 5 steps and ended as asked"
    assert data["report"]["median_step_s"] == 0.5
    assert [phase["ranks"] for phase in data["report"]["phases"] if phase["name"] == "first_step"] == [8]
    options = ["-N3", "--ntasks-per-node=2", "--cpus-per-task=48", "--gres=gpu:4", "-p", PARTITION[cluster.name]]
    exports = [f"export {name}={shlex.quote(value)}" for name, value in HOSTILE.items()]
    said = in_allocation(
        cluster,
        project,
        [*options, "--exclusive"],
        *exports,
        f"campaign try good {cluster.name} --steps 5 --keep --here --json",
    )
    here = json.loads(said)
    assert here["data"]["report"] is not None, said
    assert here["data"]["report"]["verdict"] == "it ran 5 steps and ended as asked", said
    one, other = environment(queued), environment(here)
    different = {name for name in {*one, *other} if one.get(name) != other.get(name)}
    assert different <= MAY_DIFFER, {name: (one.get(name), other.get(name)) for name in different - MAY_DIFFER}
    assert other["SLURM_JOB_NUM_NODES"] == other["SLURM_NNODES"] == "2"
    assert other["SLURM_JOB_ID"] == here["data"]["job_id"]
    assert other["CAMPAIGN_MAX_STEPS"] == "5"
    # never in what is measured
    assert cli("status", "--json", cwd=project, code=0).json()["data"]["groups"] == []


@needs("slurm")
def test_a_try_in_the_queue_that_fails(cluster: Cluster, shared: Path, cli: Cli) -> None:
    project = project_with(shared / "p", cluster.name)
    result = cli("try", "broken", "juwels", cwd=project, code=1)
    assert "broken on purpose" in result.stdout
    assert "it failed: rank 5 on jwb000" in result.stderr
    # refused by sbatch: nothing of it is left, and it can be tried again
    refused = cli("try", "good", "juwels", "--account", "nobody", cwd=project, code=2)
    assert "Invalid account" in refused.stderr
    assert not list((project / "runs" / "try").rglob("specs.jsonl"))
    # a set-up that fails: no rank has come up, and the job's own log says why
    site = project / "sites" / "juwels.yaml"
    site.write_text(re.sub(r"^setup: \[\]", "setup: [module load no/such]", site.read_text(), flags=re.MULTILINE))
    report = cli("try", "good", "juwels", "--json", cwd=project, code=1).json()["data"]["report"]
    assert report["came_up"] is False
    assert "this line of the set-up failed: module load no/such" in "\n".join(report["lines"])


@needs("slurm")
def test_an_allocation_that_does_not_fit_is_refused(testbed: Testbed, cluster: Cluster, shared: Path, cli: Cli) -> None:
    project = project_with(shared / "p", "juwels")
    refused = cli("try", "good", "juwels", "--here", cwd=project, code=2)
    assert "there is no allocation here" in refused.stderr
    assert "salloc -N" in refused.stderr
    refused = cli("try", "good", "juwels", "--here", cwd=project, code=2, env={"SLURM_JOB_ID": "9999999"})
    assert "knows no job 9999999" in refused.stderr
    options = ["-N1", "--ntasks-per-node=1", "--cpus-per-task=4", "--gres=gpu:1"]
    said = in_allocation(cluster, project, options, "campaign try good juwels --here --json")
    told = " ".join(problem["message"] for problem in json.loads(said)["errors"])
    assert "needs 2 nodes, it has 1" in told
    other = testbed.cluster("vega")
    said = in_allocation(
        other, project, ["-N2"], f"export SLURM_CONF={cluster.slurm_conf}", "campaign try good juwels --here --json"
    )
    (problem,) = json.loads(said)["errors"]
    assert "is of cluster 'vega'" in problem["message"]
    assert not (project / "runs").exists()


@needs("slurm")
@pytest.mark.parametrize("cluster", ["vega"], indirect=True)
def test_cores_and_gpus_of_an_allocation_are_counted(cluster: Cluster, shared: Path) -> None:
    """Vega shares nodes: an allocation may hold a part of each."""
    project = project_with(shared / "p", "vega")
    options = ["-N2", "--ntasks-per-node=1", "--cpus-per-task=8", "--gres=gpu:1", "--mem=100"]
    said = in_allocation(cluster, project, options, "campaign try good vega --here --json")
    told = [problem["message"] for problem in json.loads(said)["errors"]]
    assert [re.sub(r"allocation \d+", "it", message) for message in told] == [
        "it is too small: the try needs 128 cores on each node, it has 8",
        "it is too small: the try needs 4 GPUs on each node, it has 1",
    ]
    options = ["-N2", "--ntasks-per-node=1", "--cpus-per-task=8", "--gres=gpu:1", "--mem=500"]
    sets = "--set ranks_per_node=1 --set cpus_per_rank=4"
    said = in_allocation(cluster, project, options, f"campaign try good vega --steps 3 {sets} --here --json")
    assert json.loads(said)["data"]["report"]["verdict"] == "it ran 3 steps and ended as asked", said


@needs("slurm")
def test_ctrl_c_ends_a_try_here(cluster: Cluster, shared: Path) -> None:
    """The ranks end, their record says how, and the allocation is free for the next command."""
    project = project_with(shared / "p", "juwels")
    pid = project / "pid"
    lines = [
        f"{shlex.quote(campaign_command())} try slow juwels --steps 100000 --here --json > first.json &",
        f"echo $! > {pid}.part && mv {pid}.part {pid}",
        "wait $!; echo code $?",
        f"{shlex.quote(campaign_command())} try good juwels --steps 2 --here --json > second.json",
    ]
    script = project / "in-salloc.sh"
    # a background job of a shell without job control ignores SIGINT unless told otherwise
    script.write_text("set -m\n" + "\n".join(lines) + "\n")
    options = ["--quiet", "--account=demo", "--time=10", "-N2", "--gres=gpu:4", "-p", "develbooster"]
    salloc = subprocess.Popen(
        ["salloc", *options, "bash", str(script)], cwd=project, env=cluster.env, stdout=subprocess.PIPE, text=True
    )
    wait_for((project / "began").exists, what="ranks make steps")
    os.kill(int(pid.read_text()), signal.SIGINT)
    said, _ = salloc.communicate(timeout=120)
    assert "code 130" in said
    first = json.loads((project / "first.json").read_text())
    assert first["data"]["report"]["state"] == "interrupted", first
    second = json.loads((project / "second.json").read_text())
    assert second["data"]["report"]["verdict"] == "it ran 2 steps and ended as asked"
