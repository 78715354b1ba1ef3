"""How jobs end on real Slurm: the record says what happened, partial data are kept, nothing stays on the nodes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cli, Result
from tests.needs import needs
from tests.slurm.projects import make_project, study
from tests.slurm.testbed import Cluster, Testbed
from tests.waiting import wait_for

RECORDS_THEN = """
import os, sys, time, signal
from campaign.record import Recorder
rank = int(os.environ["RANK"])
recorder = Recorder.from_env()
recorder.world(rank, int(os.environ["WORLD_SIZE"]))
for step in range(20):
    recorder.step(0, step, samples=4, step_s=0.01, loss=1.0)
recorder.epoch(0, epoch_time_s=0.2, steps=20, samples_seen=80)
open(os.path.join(os.environ["TMPDIR"], "left-behind"), "w").write("x")
print("before the end", flush=True)
"""


@pytest.fixture
def project(cluster: Cluster, shared: Path) -> Path:
    return shared / "p"


@pytest.fixture
def nodes_left_clean(cluster: Cluster, project: Path) -> Iterator[None]:
    """After the test no node has anything of ours in /dev/shm."""
    yield
    look = ["find", "/dev/shm", "-path", "*campaign/*"]
    left = cluster.run("srun", "-Q", "-N4", "-n4", "--label", *look).stdout
    assert left == ""


def run(cli: Cli, cluster: Cluster, project: Path, then: str, **more: Any) -> tuple[Result, dict[str, Any], Path]:
    """One run of 2 nodes x 2 ranks that records, then does `then`. Gives the answer, the record, its folder."""
    shape = {"axes": {"nodes": [2], "ranks_per_node": [2]}, **more}
    make_project(project, cluster.name, studies={"end": study(["python", "end.py"], **shape)})
    (project / "end.py").write_text(RECORDS_THEN + then)
    answer = cli("run", cluster.name, "--study", "end", "--no-plots", cwd=project)
    return answer, *the_record(project)


def the_record(project: Path) -> tuple[dict[str, Any], Path]:
    (path,) = (project / "runs" / "runs").glob("*/*/a1/record.json")
    return json.loads(path.read_text()), path.parent


def data_were_kept(folder: Path) -> None:
    import pyarrow.parquet as pq

    assert pq.read_table(folder / "steps.parquet").num_rows == 20  # rank 0's
    assert pq.read_table(folder / "epochs.parquet").num_rows == 1
    assert "before the end" in (folder / "console.log").read_text()


@needs("slurm")
@pytest.mark.usefixtures("nodes_left_clean")
def test_a_rank_that_raises(cluster: Cluster, project: Path, cli: Cli) -> None:
    then = "if rank == 3: raise ValueError('the culprit speaks')\ntime.sleep(600)\n"
    answer, record, folder = run(cli, cluster, project, then)
    assert answer.code == 1
    assert (record["state"], record["fail_class"]) == ("failed", "user")
    assert record["exit"]["rank"] == 3
    assert record["exit"]["node"] == record["nodes"][1]
    assert "the culprit speaks" in (folder / "failed.log").read_text()
    data_were_kept(folder)
    shown = cli("show", record["run_id"][:6], cwd=project, code=0).stdout
    assert "the culprit speaks" in shown


@needs("slurm")
@pytest.mark.usefixtures("nodes_left_clean")
def test_a_rank_that_is_killed(cluster: Cluster, project: Path, cli: Cli) -> None:
    then = "if rank == 1: os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(600)\n"
    _, record, folder = run(cli, cluster, project, then)
    assert record["state"] == "failed"
    assert (record["exit"]["rank"], record["exit"]["signal"]) == (1, 9)
    data_were_kept(folder)


@needs("slurm")
@pytest.mark.usefixtures("nodes_left_clean")
def test_a_time_limit(cluster: Cluster, project: Path, cli: Cli) -> None:
    """All ranks hang; the walltime ends it."""
    _, record, folder = run(cli, cluster, project, "time.sleep(600)\n", walltime="00:01:00")
    assert record["state"] == "timeout"
    data_were_kept(folder)


@needs("slurm")
@pytest.mark.usefixtures("nodes_left_clean")
def test_a_rank_that_prints_a_gigabyte(cluster: Cluster, project: Path, cli: Cli) -> None:
    then = "line = b'x' * 1023 + b'\\n'\nfor _ in range(1024): os.write(1, line * 1024)\nprint('the very last line')\n"
    answer, record, folder = run(cli, cluster, project, then, axes={"nodes": [1], "ranks_per_node": [1]})
    assert answer.code == 0, answer
    assert record["state"] == "done"
    console = folder / "console.log"
    assert console.stat().st_size <= 1024 * 1024 + 4096
    text = console.read_text()
    assert "before the end" in text
    assert "the very last line" in text


@needs("slurm")
@pytest.mark.usefixtures("nodes_left_clean")
def test_cancel(cluster: Cluster, project: Path, cli: Cli) -> None:
    axes = {"nodes": [2], "ranks_per_node": [2]}
    make_project(project, cluster.name, studies={"end": study(["python", "end.py"], axes=axes)})
    (project / "end.py").write_text(RECORDS_THEN + "time.sleep(600)\n")
    cli("plan", cluster.name, "--study", "end", cwd=project, code=0)
    cli("submit", cwd=project, code=0)
    wait_for(lambda: printed(project), what="rank 0 has printed")
    cli("cancel", "--all", cwd=project, code=0)
    wait_for(lambda: final(project), what="the record is written")
    record, folder = the_record(project)
    assert record["state"] == "cancelled"
    data_were_kept(folder)

    def states() -> dict[str, int]:
        status = cli("status", "--force", "--json", cwd=project, code=0).json()
        return {name: count for name, count in status["data"]["groups"][0]["states"].items() if count}

    # the record is written within KillWait; Slurm calls the job running until its last process has gone
    wait_for(lambda: states() == {"cancelled": 1}, what=lambda: str(states()))


def printed(project: Path) -> bool:
    return any("before the end" in path.read_text() for path in (project / "runs" / "runs").glob("*/*/a1*/console.log"))


def final(project: Path) -> bool:
    return bool(list((project / "runs" / "runs").glob("*/*/a1/record.json")))


@needs("slurm", "tmpfs")
@pytest.mark.parametrize("cluster", ["vega"], indirect=True)
def test_a_full_node_local_disk(cluster: Cluster, testbed: Testbed, project: Path, shared: Path, cli: Cli) -> None:
    """Every node's `node_local` is a file system of 1 MiB, and a rank fills it: the record says so, data are kept."""
    small = shared / "small"
    small.mkdir()
    for node in cluster.nodes:
        in_node(testbed, node, "mount", "-t", "tmpfs", "-o", "size=1m", "none", str(small))
    then = "open(os.path.join(os.environ['TMPDIR'], 'big'), 'wb').write(b'x' * 4_000_000)\n"
    axes = {"nodes": [2], "ranks_per_node": [2]}
    make_project(project, cluster.name, studies={"end": study(["python", "end.py"], axes=axes)})
    config = json.loads((project / "campaign.yaml").read_text())
    config["paths"][cluster.name]["node_local"] = str(small / "campaign")
    (project / "campaign.yaml").write_text(json.dumps(config))
    (project / "end.py").write_text(RECORDS_THEN + then)
    try:
        answer = cli("run", cluster.name, "--study", "end", "--no-plots", cwd=project)
        assert answer.code == 1
        record, folder = the_record(project)
        assert (record["state"], record["fail_class"]) == ("failed", "quota")
        assert "No space left" in (folder / "failed.log").read_text()
        data_were_kept(folder)
        for node in cluster.nodes:
            assert in_node(testbed, node, "find", str(small / "campaign"), "-type", "f") == ""
    finally:
        for node in cluster.nodes:
            in_node(testbed, node, "umount", str(small))


def in_node(testbed: Testbed, node: str, *argv: str) -> str:
    """Run a command in a node's mount namespace, past Slurm."""
    process = testbed.pids.process(f"node-{node}")
    assert process is not None
    command = ["nsenter", "-t", str(process.pid), "-m", "--root", *argv]  # its root: that of a chroot, too
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
