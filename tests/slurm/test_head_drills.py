"""Nodes and processes of a job that die: real Slurm, a bed of our own, one head and one agent per node."""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from campaign.job.spec import RunSpec
from tests.job.jobs import Ended, Site
from tests.needs import needs
from tests.slurm.testbed import Cluster, Testbed
from tests.waiting import wait_for

pytestmark = needs("slurm")

ENDLESS = """
    import os, time
    from campaign.record import Recorder

    recorder = Recorder.from_env()
    recorder.world(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    step = 0
    open("ready" + os.environ["RANK"], "w").close()
    print("ready")
    while True:
        recorder.step(0, step, samples=1, step_s=0.05)
        recorder.flush()
        step += 1
        time.sleep(0.05)
"""


UNREACHABLE = {"interface": "lo", "master_addr_suffix": None, "resolve_ip": True}
"""A site file with the wrong interface: no other node can reach the head."""


@dataclass
class Job:
    """A job on the bed that runs a head."""

    cluster: Cluster
    site: Site
    spec: RunSpec
    job: str
    log: Path

    def wait_ready(self) -> None:
        """Wait until every rank has begun and rows have reached the partial folder."""
        ranks = range(self.spec.world_size)
        stream = self.spec.run_dir / "a1.partial" / "steps.arrows"
        wait_for(
            lambda: all((self.site.project / f"ready{rank}").exists() for rank in ranks) and stream.exists(),
            what=lambda: self.log.read_text(encoding="utf-8") if self.log.exists() else "no log",
        )

    def wait(self) -> Ended:
        """Wait until Slurm calls the job over; what it left."""
        self.cluster.wait_job(self.job)
        return Ended(self.spec, 0, self.log.read_text(encoding="utf-8"))

    def wait_record(self) -> Ended:
        """Wait for the record; Slurm takes longer when it can't ask a node."""
        path = self.spec.run_dir / "a1" / "record.json"
        wait_for(path.exists, what=lambda: self.log.read_text(encoding="utf-8") if self.log.exists() else "no log")
        return Ended(self.spec, 0, self.log.read_text(encoding="utf-8"))

    def pids(self, node: str, words: str) -> list[int]:
        """Processes on a node (as this machine numbers them) whose command line holds `words`."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                here = f"SLURMD_NODENAME={node}\0".encode() in (entry / "environ").read_bytes()
                job = f"SLURM_JOB_ID={self.job}\0".encode() in (entry / "environ").read_bytes()
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if here and job and words in line:
                found.append(int(entry.name))
        return found


@pytest.fixture
def vega(own_testbed: Testbed) -> Iterator[Cluster]:
    """The cluster, whole before and after."""
    cluster = own_testbed.cluster("vega")
    yield cluster
    for node in cluster.nodes:
        own_testbed.link_up("vega", node)
        own_testbed.node_up("vega", node)
        own_testbed.wait_node("vega", node, "idle")


def start(bed: Testbed, vega: Cluster, code: str, *options: str, **changes: Any) -> Job:
    site = Site(Path(tempfile.mkdtemp(dir=bed.layout.shared)))
    spec = site.spec(
        site.script(code),
        **{
            "nodes": 2,
            "scheduler": "slurm",
            "site": "vega",
            "node_local": "/dev/shm/drill",
            "walltime_s": 300.0,
            "network": {"interface": "ib0", "master_addr_suffix": None, "resolve_ip": True},
            "srun_args": ["--cpu-bind=none", "--kill-on-bad-exit=1"],
            "record": {"fail_grace_s": 1},
        }
        | changes,
    )
    folder = site.submit(spec)
    log = folder / "job.log"
    command = f"exec {sys.executable} -P -m campaign.job.head {folder}"
    job = vega.submit(
        f"-N{spec.nodes}", "--ntasks-per-node=1", "--cpus-per-task=4", "-t5", "--mem=2G", "--no-requeue",
        "--signal=B:USR2@30", "--open-mode=append", "-o", str(log), *options, "--wrap", command,
    )  # fmt: skip
    return Job(vega, site, spec, job, log)


def local_folders(vega: Cluster) -> dict[str, str]:
    """What lies in each node's node-local folder."""
    count = len(vega.nodes)
    script = "echo $(ls /dev/shm/drill 2>/dev/null)"
    lines = vega.run("srun", "-Q", f"-N{count}", f"-n{count}", "-t1", "--mem=50M", "--label", "sh", "-c", script)
    return {
        vega.nodes[int(rank)]: names.strip()
        for rank, _, names in (line.partition(":") for line in lines.stdout.splitlines())
    }


def test_a_node_that_loses_power(own_testbed: Testbed, vega: Cluster) -> None:
    job = start(own_testbed, vega, ENDLESS)
    job.wait_ready()
    own_testbed.node_kill("vega", "gn02")
    ended = job.wait_record()
    assert ended.state == ("failed", "node"), ended.log
    assert ended.record["missing_nodes"] == ["gn02"]
    assert ended.record["complete"] is False
    assert ended.rows("steps")
    own_testbed.node_up("vega", "gn02")
    assert local_folders(vega) == {"gn01": "", "gn02": ""}


def test_a_node_that_is_unplugged_before_the_agents_start(own_testbed: Testbed, vega: Cluster) -> None:
    """Its agent starts, maybe, but never reaches the head: the run fails within its start timeout and says where."""
    job = start(own_testbed, vega, ENDLESS, "--begin=now+1", record={"start_timeout_s": 6})
    own_testbed.link_down("vega", "gn02")
    ended = job.wait_record()
    assert ended.state == ("failed", "node"), ended.log
    assert "1 of 2 nodes missing: gn02" in ended.record["reason"]
    assert ended.record["nodes"] == ["gn01"]


def test_a_job_that_is_cancelled_before_its_agents_are_there_was_cancelled(own_testbed: Testbed, vega: Cluster) -> None:
    """A node that has sent nothing yet is not a lost one. Meanwhile the job's log says who is waited for."""
    job = start(own_testbed, vega, ENDLESS, network=UNREACHABLE, record={"start_timeout_s": 500})
    wait_for(lambda: job.log.exists() and "waiting since" in job.log.read_text(encoding="utf-8"), 120)
    said = job.log.read_text(encoding="utf-8")
    assert re.search(r"waiting since \d+ s for the agents to connect to [\d.]+:\d+.*; 1 of 2 nodes missing: gn02", said)
    vega.run("scancel", job.job)
    ended = job.wait_record()
    assert ended.state == ("cancelled", None), ended.log
    assert ended.record["reason"] == "the job was told to end (SIGTERM)"


def test_agents_that_never_come_are_no_time_limit_that_was_too_short(own_testbed: Testbed, vega: Cluster) -> None:
    job = start(own_testbed, vega, ENDLESS, network=UNREACHABLE, walltime_s=10.0, record={"start_timeout_s": 500})
    ended = job.wait_record()
    assert ended.state == ("failed", "node"), ended.log
    assert "did not come up within the time limit of 10 s; 1 of 2 nodes missing: gn02" in ended.record["reason"]
    assert "see network.interface and network.master_addr_suffix in the site file" in ended.record["reason"]


def test_an_agent_that_is_killed(own_testbed: Testbed, vega: Cluster) -> None:
    job = start(own_testbed, vega, ENDLESS, ranks_per_node=2)
    job.wait_ready()
    (agent,) = {pid for pid in job.pids("gn02", "campaign.job.agent") if len(children_of(pid)) > 1}
    os.kill(agent, signal.SIGKILL)
    ended = job.wait()
    assert ended.state == ("failed", "node"), ended.log
    assert ended.record["missing_nodes"] == ["gn02"]
    assert not job.pids("gn02", "train.py")
    assert local_folders(vega) == {"gn01": "", "gn02": ""}


def children_of(pid: int) -> list[int]:
    from tests.job.jobs import children

    return list(children(pid))


def test_a_head_that_is_killed(own_testbed: Testbed, vega: Cluster) -> None:
    job = start(own_testbed, vega, ENDLESS)
    job.wait_ready()
    (head,) = job.pids("gn01", "campaign.job.head")
    os.kill(head, signal.SIGKILL)
    vega.wait_job(job.job, "FAILED")
    partial = job.spec.run_dir / "a1.partial"
    with pa.OSFile(str(partial / "steps.arrows")) as source, pa.ipc.open_stream(source) as reader:
        assert reader.read_all().num_rows > 0
    wait_for(lambda: not job.pids("gn01", "train.py") + job.pids("gn02", "train.py"))
    assert local_folders(vega) == {"gn01": "", "gn02": ""}


def test_a_step_that_slurm_refuses(own_testbed: Testbed, vega: Cluster) -> None:
    ended = start(own_testbed, vega, ENDLESS, srun_args=["--no-such-option"]).wait()
    assert ended.state == ("failed", "config"), ended.log
    assert "no-such-option" in ended.record["reason"]
    assert ended.record["missing_nodes"] == ["gn01", "gn02"]


def test_a_rank_that_takes_too_much_memory(own_testbed: Testbed, vega: Cluster) -> None:
    if not own_testbed.memory_limits:
        pytest.fail("the bed has no memory limits: the drill can't be run")
    hog = """
        import os, time
        print("ready")
        if os.environ["RANK"] == "1":
            blocks = []
            while True:
                blocks.append(b"x" * (16 << 20))
        time.sleep(600)
    """
    ended = start(own_testbed, vega, hog, "--mem=400M").wait()
    assert ended.state == ("failed", "oom_host"), ended.log
    assert ended.record["exit"]["rank"] == 1
    assert ended.record["exit"]["signal"] == signal.SIGKILL
    assert ended.record["exit"]["node"] == "gn02"
    assert ended.record["missing_nodes"] == []
