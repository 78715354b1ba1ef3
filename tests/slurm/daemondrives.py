"""How faults of Slurm's daemons and refusals of sbatch are produced, and mended again: one generator per fault."""

from __future__ import annotations

import re
import shutil
import time

from tests.slurm.faults import SQUEUE, Drill
from tests.slurm.jobdrives import DRAINED, SMALL, Drive, kill
from tests.waiting import wait_for


def as_they_were(drill: Drill, study: str, said: str) -> None:
    """A query that fails: nothing in the states of a study that runs moves, and the answer says how old they are."""
    sql = ("SELECT runs.run_id, runs.state, runs.fail_class, runs.reason, attempts, jobs.state, jobs.slurm_state "
           "FROM runs JOIN jobs USING (run_id) WHERE study = ? ORDER BY ord")  # fmt: skip
    before = drill.query(sql, study)
    assert {row[1] for row in before} == {"running"}
    answer = drill.cli("status", "--force", "--json", code=3)
    (error,) = answer.json()["errors"]
    assert said in error["message"], answer
    assert re.search(r"\d+ s ago", error["hint"]), answer
    assert drill.query(sql, study) == before
    (site,) = (site for site in answer.json()["data"]["sites"] if site["site"] == "vega")
    assert site["error"], answer
    assert site["age_s"] > 0, answer
    assert "vega: as of" in drill.cli("status", "--no-refresh").stdout


def killed_after_submit(drill: Drill) -> Drive:
    """slurmctld is killed as soon as sbatch has its answer: afterwards it doesn't know the job, or it runs."""
    pid = drill.bed.pids.process("slurmctld-vega")
    assert pid is not None
    shim = drill.project / "bin" / "sbatch"
    shim.parent.mkdir()
    # a job that comes first makes the controller save; what comes within the next seconds isn't saved at once
    real = shutil.which("sbatch")
    lines = ["#!/bin/sh", f"{real} --hold -o /dev/null --wrap true >/dev/null", f'answer=$({real} "$@") || exit',
             f"kill -9 {pid.pid}", 'echo "$answer"']  # fmt: skip
    shim.write_text("\n".join(lines) + "\n")
    shim.chmod(0o755)
    path = drill.env["PATH"]
    drill.env["PATH"] = f"{shim.parent}:{path}"
    try:
        drill.submit("second")
    finally:
        drill.env["PATH"] = path
    wait_for(lambda: drill.bed.pids.process("slurmctld-vega") is None, what="the controller is dead")
    drill.bed.ctld_start("vega")
    drill.record("killed_after_submit", "second")
    drill.go("second")
    yield
    # a node that got a job which the controller has forgotten is drained
    for node, state in drill.cluster.node_states().items():
        if state.startswith("drain") and node != DRAINED:
            drill.resume(node)


def saved(drill: Drill) -> None:
    """Wait until the controller has written down what it knows now: else it starts the job a second time."""
    file = drill.bed.layout.root / "state" / "vega" / "job_state"
    now = time.time()
    drill.admin("scontrol", "update", f"jobid={drill.job('killed')}", "comment=x")  # something to write down
    wait_for(lambda: file.stat().st_mtime > now, what=f"{file} is written")


def killed(drill: Drill) -> Drive:
    """slurmctld is killed while a run runs, and comes back."""
    drill.submit("killed")
    drill.began("killed")
    drill.until("killed", "running")
    saved(drill)
    drill.bed.ctld_kill("vega")
    try:
        as_they_were(drill, "killed", "Unable to contact slurm controller")
        drill.keep("controller_away.squeue", *SQUEUE)
    finally:
        drill.bed.ctld_start("vega")
    drill.until("killed", "running")
    drill.go("killed")
    drill.until("killed", "done")
    yield


def restarted(drill: Drill) -> Drive:
    """slurmctld ends in order; a run that is to be queued meanwhile stays planned; it comes back."""
    drill.bed.ctld_stop("vega")
    try:
        drill.submit("restarted", code=3)
        assert drill.endings("restarted") in ([("planned", None)], [("submitting", None)])
    finally:
        drill.bed.ctld_start("vega")
    # until its nodes have reported to it, the controller thinks that they have no GPUs
    look = ("srun", "-Q", "-w", SMALL, "-n1", "--gres=gpu:1", "--mem=50M", "-t1", "true")
    wait_for(lambda: drill.admin(*look, check=False).returncode == 0, what=drill.squeue)
    until_planned(drill, "restarted")
    drill.submit("restarted")
    drill.go("restarted")
    yield


def until_planned(drill: Drill, study: str) -> None:
    """Wait until a submission that nobody answered is given back."""
    wait_for(lambda: set(drill.states(study)) == {"planned"}, what=lambda: str(drill.endings(study)))


def database(drill: Drill) -> Drive:
    """slurmdbd is away: sbatch and squeue go on, ends are learned from records, what has none stays as it was."""
    drill.submit("dbd")
    drill.began("dbd", 2)
    drill.until("dbd", "running", "running")
    drill.bed.dbd_stop()
    try:
        as_they_were(drill, "dbd", "accounting didn't answer")
        drill.keep("database_away.sacct", "sacct", "-X", "-P", "-n", "-u", "root")
        kill(drill, "dbd", "campaign.job.head", place=1)
        drill.go("dbd")
        wait_for(lambda: len(drill.tally("ends", "dbd")) == 1, what=drill.squeue)
        drill.until("dbd", "done", "running")
    finally:
        drill.bed.dbd_start()
    yield


# -- refused ---------------------------------------------------------------------------------------------------------


def refused(drill: Drill) -> Drive:
    """sbatch refuses account and QOS: exit code 2, the runs stay planned."""
    drill.plan("account", more=("--account", "nobody"))
    answer = drill.submit("account", code=2)
    assert "Invalid account" in answer.stderr, answer
    answer = drill.submit("qos", code=2)
    assert "Invalid qos" in answer.stderr, answer
    assert drill.endings("account", "qos") == [("planned", None)] * 4
    for option in ("--account=nobody", "--qos=nope", "--partition=nope"):
        drill.keep(f"refused{option.replace('-', '_').replace('=', '_')}.sbatch", "sbatch", option, "--wrap", "true")
    drill.plan("account")
    drill.submit("account")
    drill.go("account")
    yield


def partition(drill: Drill) -> Drive:
    """The partition is down: sbatch takes the job, which waits. Inactive: sbatch refuses it."""
    try:
        drill.admin("scontrol", "update", "partitionname=gpu", "state=down")
        drill.submit("down")
        drill.go("down", "inactive")
        wait_for(lambda: "PartitionDown" in drill.squeue(), what=drill.squeue)
        assert drill.states("down") == ["queued"]
        pending = {row["reason"] for row in drill.poll().json()["data"]["pending"]}
        assert any("PartitionDown" in reason for reason in pending), pending
        drill.record("partition_down", "down")
        drill.admin("scontrol", "update", "partitionname=gpu", "state=inactive")
        drill.keep("refused_inactive.sbatch", "sbatch", "--partition=gpu", "--wrap", "true")
        # not now: the partition opens again
        drill.submit("inactive", code=3)
    finally:
        drill.admin("scontrol", "update", "partitionname=gpu", "state=up")
    assert drill.endings("inactive") == [("planned", None)]
    drill.submit("inactive")
    yield
