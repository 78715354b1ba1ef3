"""How faults of nodes, jobs and folders are produced, and mended again: one generator per fault.

A drive queues its runs, breaks something, looks, and mends it. Where it has to wait for Slurm it yields, and the other
drives go on meanwhile. What the runs must come to is said in tests/slurm/test_faults.py.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.slurm.faults import Drill, work
from tests.waiting import wait_for

WHOLE = {"cpus_per_rank": 128}
"""Resources of a run that has its nodes for itself."""
SMALL, BUSY, DRAINED = "gn01", "gn08", "gn09"
"""Nodes of small runs, of the runs that one node is too small for, and the one that is drained."""
BROKEN = {"exclude": f"{SMALL},{BUSY},{DRAINED}", **WHOLE}
"""Resources of runs whose nodes are broken: which of the others, Slurm decides."""
STUDIES: dict[str, dict[str, Any]] = {
    "timeout": work("timeout", walltime="00:01:00"),
    "ended": work("ended"),
    "died": work("died", axes={"nodes": [1, 2], "ranks_per_node": [1]}, resources=BROKEN),
    "cut": work("cut", axes={"nodes": [2], "ranks_per_node": [1]}, resources=BROKEN),
    "island": work("island", resources=BROKEN),
    "second": work("second", repeats=2),
    "killed": work("killed"),
    "restarted": work("restarted"),
    "dbd": work("dbd", repeats=2),
    "drained": work("drained", resources={"nodelist": DRAINED}),
    "waits": work("waits", resources={"nodelist": DRAINED}),
    "held": work("held", resources={"nodelist": DRAINED}),
    "preempted": work("preempted", resources={"qos": "low", "nodelist": BUSY, **WHOLE}),
    "cancelled": work("cancelled", repeats=4, resources={"nodelist": BUSY, **WHOLE}),
    "memory": work("memory", "hog", resources={"memory": "400M"}),
    "head": work("head"),
    "agent": work("agent"),
    "removed": work("removed"),
    "unsent": work("unsent", resources={"nodelist": DRAINED}),
    "account": work("account", repeats=2),
    "qos": work("qos", repeats=2, resources={"qos": "nope"}),
    "down": work("down"),
    "inactive": work("inactive"),
    "requeued": work("requeued"),
    "purged": work("purged", "quick"),
}
"""Studies of the main project: names are those that drives use."""

Drive = Iterator[None]


# -- nodes -----------------------------------------------------------------------------------------------------------


def died(drill: Drill) -> Drive:
    """The node of a head loses power, and the second node of another run."""
    drill.submit("died")
    drill.began("died", 3)
    victims = [drill.nodes_of(drill.job("died", 0))[0], drill.nodes_of(drill.job("died", 1))[1]]
    for node in victims:
        drill.bed.node_kill("vega", node)
    yield
    for node in victims:
        drill.bed.wait_node("vega", node, "down")
    drill.poll()
    drill.record("node_died", "died")
    drill.keep("node_died.nodes", "sinfo", "-h", "-N", "-o", "%N %T %E")
    for node in victims:
        drill.bed.node_up("vega", node)


def cut(drill: Drill) -> Drive:
    """The link of the second node of a run is cut, and of the one node of another, which ends its work there."""
    drill.submit("cut", "island")
    drill.began("cut", 2)
    drill.began("island")
    victims = [drill.nodes_of(drill.job("cut"))[1], drill.nodes_of(drill.job("island"))[0]]
    for node in victims:
        drill.bed.link_down("vega", node)
    drill.go("island")
    (run_id,) = drill.runs("island")
    record = drill.run_root / "runs" / run_id[:2] / run_id / "a1" / "record.json"
    wait_for(record.exists, what="the run on the node that nobody reaches ends")
    yield
    for node in victims:
        drill.bed.wait_node("vega", node, "down")
    drill.poll()
    drill.record("link_cut", "cut")
    drill.record("link_cut_island", "island")
    drill.go("cut")
    for node in victims:
        drill.bed.link_up("vega", node)
        drill.bed.wait_node("vega", node, "idle")


def drained(drill: Drill) -> Drive:
    """A node is drained under a run, which ends well; one that waits for the node is told why; one is held."""
    drill.submit("drained")
    drill.began("drained")
    drill.admin("scontrol", "update", f"nodename={DRAINED}", "state=drain", "reason=faulty, to be swapped")
    drill.submit("waits")
    drill.submit("held")
    drill.submit("unsent")
    drill.admin("scontrol", "hold", drill.job("held"))
    drill.go("drained", "waits", "held", "unsent")
    drill.until("drained", "done")
    yield
    drill.until("waits", "queued")
    pending = {row["reason"] for row in drill.poll().json()["data"]["pending"]}
    assert any("DOWN, DRAINED or reserved" in reason or "ReqNodeNotAvail" in reason for reason in pending), pending
    assert any("JobHeldAdmin" in reason or "JobHeldUser" in reason for reason in pending), pending
    drill.record("drained", "waits")
    drill.record("held", "held")
    drill.keep("drained.nodes", "sinfo", "-h", "-N", "-o", "%N %T %E")
    # of a run that waits, all that its job would need is removed
    (folder,) = drill.query("SELECT submit_dir FROM jobs JOIN runs USING (run_id) WHERE study = 'unsent'")
    shutil.rmtree(folder[0])
    drill.resume(DRAINED)
    drill.until("waits", "done")
    assert drill.states("held") == ["queued"]
    assert not drill.tally("starts", "held")
    drill.admin("scontrol", "release", drill.job("held"))


# -- jobs ------------------------------------------------------------------------------------------------------------


def timeout(drill: Drill) -> Drive:
    """One run reaches its walltime, which its head knows; another is ended by Slurm, before the head expects it."""
    drill.submit("timeout", "ended")
    drill.began("timeout")
    drill.began("ended")
    drill.admin("scontrol", "update", f"jobid={drill.job('ended')}", "endtime=now+5")
    yield


def preempted(drill: Drill) -> Drive:
    """Somebody's job of higher QOS takes the node."""
    drill.submit("preempted")
    drill.began("preempted")
    other = drill.cluster.submit("--qos=high", "-w", BUSY, "--exclusive", "-t1", "--wrap", "true")
    yield
    drill.cluster.wait_job(other, "COMPLETED")
    drill.poll()
    drill.record("preempted", "preempted")


def cancelled(drill: Drill) -> Drive:
    """Of an array whose first element runs, the first and the third are cancelled by hand."""
    drill.submit("cancelled")
    drill.began("cancelled")
    drill.record("array_waits", "cancelled")
    drill.admin("scancel", drill.job("cancelled", 2), drill.job("cancelled", 0))
    # its rank must not end by itself instead
    wait_for(lambda: drill.cluster.job_state(drill.job("cancelled", 0)) == "CANCELLED", what=drill.squeue)
    drill.go("cancelled")
    yield
    wait_for(lambda: drill.states("cancelled").count("done") == 2, what=drill.squeue)
    drill.record("array_cancelled", "cancelled")


def memory(drill: Drill) -> Drive:
    """A rank takes more memory than its job has."""
    drill.submit("memory")
    yield
    drill.record("out_of_memory", "memory")


def head(drill: Drill) -> Drive:
    """SIGKILL to the head."""
    drill.submit("head")
    drill.began("head")
    kill(drill, "head", "campaign.job.head")
    drill.go("head")
    yield
    drill.record("head_killed", "head")


def agent(drill: Drill) -> Drive:
    """SIGKILL to a node agent."""
    drill.submit("agent")
    drill.began("agent")
    kill(drill, "agent", "campaign.job.agent")
    drill.go("agent")
    yield


def kill(drill: Drill, study: str, words: str, place: int = 0) -> None:
    """SIGKILL to a job's processes of this command line that aren't Slurm's."""
    pids = [
        pid for pid in drill.processes(drill.job(study, place), words) if _program(pid) not in ("srun", "slurmstepd")
    ]
    assert pids, drill.squeue()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def _program(pid: int) -> str:
    """What a process calls itself; "" when it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def requeued(drill: Drill) -> Drive:
    """An administrator requeues a running job, although it says --no-requeue."""
    drill.submit("requeued")
    drill.began("requeued")
    job = drill.job("requeued")
    drill.keep("requeue_refused.scontrol", "scontrol", "requeue", job)
    if drill.admin("scontrol", "requeue", job, check=False).returncode:
        drill.admin("scontrol", "update", f"jobid={job}", "requeue=1")
        drill.admin("scontrol", "requeue", job)
    # let go any sooner it might end well before it is told to end
    wait_for(lambda: not drill.processes(job, "work.py"), what=drill.squeue)
    drill.go("requeued")
    drill.poll()
    drill.record("requeued", "requeued")
    yield


def purged(drill: Drill) -> Drive:
    """Nobody asks while a run ends; then neither controller nor database know its job any more."""
    drill.submit("purged")
    wait_for(lambda: drill.tally("ends", "purged"), what=drill.squeue)
    job = drill.job("purged").partition("_")[0]
    drill.cluster.wait_job(f"{job}_0")
    wait_for(lambda: ("COMPLETED",) in drill.cluster.accounting(f"{job}_0", "State"), what="accounted for")
    sql = f"DELETE FROM slurm_acct_db.vega_job_table WHERE id_array_job = {job} OR id_job = {job}"
    subprocess.run(["mariadb", f"--socket={drill.bed.layout.mysql_socket}", "-e", sql], check=True)
    assert drill.cluster.accounting(job, "State") == []
    drill.record("purged", "purged")
    yield


# -- folders ---------------------------------------------------------------------------------------------------------


def removed(drill: Drill) -> Drive:
    """Somebody removes the folder of a run that runs."""
    drill.submit("removed")
    drill.began("removed")
    (run_id,) = drill.runs("removed")
    shutil.rmtree(drill.run_root / "runs" / run_id[:2] / run_id)
    drill.go("removed")
    yield
