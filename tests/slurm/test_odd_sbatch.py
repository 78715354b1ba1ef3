"""sbatch that hangs, that answers an error though the job exists, two submissions at once: each run executes once.

The programs in front of the real ones are real shell scripts: the job is (or isn't) really queued behind their answer.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Cli, campaign_command
from tests.needs import needs
from tests.slurm.projects import TALLY, counts, make_project, study, tally
from tests.slurm.testbed import Cluster
from tests.waiting import wait_for

ERRORS = {
    "timed out": "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
    "reset": "sbatch: error: Batch job submission failed: Connection reset by peer",
    "killed": "",
}


def planned(folder: Path, cluster: Cluster, cli: Cli, runs: int = 3, grace_s: int = 2) -> Path:
    """A project with so many planned runs of one shape, which gives an intent back after `grace_s`."""
    axes = {"nodes": [1], "ranks_per_node": [1]}
    project = make_project(folder, cluster.name, studies={"t": study(["python", "-c", TALLY], axes=axes, repeats=runs)})
    path = project / "sites" / f"{cluster.name}.yaml"
    path.write_text(re.sub(r"adopt_grace_s: \d+", f"adopt_grace_s: {grace_s}", path.read_text()))
    cli("plan", cluster.name, "--study", "t", cwd=project, code=0)
    return project


def in_front(folder: Path, **scripts: str) -> dict[str, str]:
    """PATH with these scripts in front of the real programs; `$REAL` in them is the real one."""
    folder.mkdir()
    for name, text in scripts.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\nREAL={shutil.which(name)}\n{text}\n")
        path.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def executed_once(project: Path, cluster: Cluster, cli: Cli, runs: int = 3) -> None:
    """Submit until all have run; the tally and accounting say how often."""

    def all_done() -> bool:
        cli("submit", cwd=project)
        return counts(cli, project) == {"done": runs}

    wait_for(all_done, what=lambda: f"{counts(cli, project)}, {len(tally(project))} have begun")
    assert len(tally(project)) == len(set(tally(project))) == runs
    names = ",".join(path.name for path in (project / "runs" / "submit").iterdir())

    def accounted() -> list[str]:
        answer = cluster.run("sacct", "-X", "-P", "-n", "--name", names, "-S", "now-1hour", "-o", "State")
        return answer.stdout.split()

    wait_for(lambda: accounted() == ["COMPLETED"] * runs, what=lambda: str(accounted()))


@needs("slurm")
@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_though_the_job_exists(kind: str, cluster: Cluster, shared: Path, cli: Cli) -> None:
    project = planned(shared / "p", cluster, cli)
    fate = "kill -9 $$" if kind == "killed" else f"echo '{ERRORS[kind]}' >&2; exit 1"
    path = in_front(shared / "bin", sbatch=f'"$REAL" "$@" >/dev/null; {fate}')
    answer = cli("submit", "--json", cwd=project, env=path, code=3).json()
    assert answer["data"]["queued"] == 0
    assert "no clear answer" in answer["errors"][0]["message"]
    executed_once(project, cluster, cli)


@needs("slurm")
@pytest.mark.parametrize("reached", [True, False])
def test_sbatch_that_hangs(reached: bool, cluster: Cluster, shared: Path, cli: Cli) -> None:
    """Before or after it has reached the controller. Our deadline of two minutes is three seconds here."""
    project = planned(shared / "p", cluster, cli)
    first = '"$REAL" "$@" >/dev/null; ' if reached else ""
    path = in_front(shared / "bin", sbatch=f"{first}exec sleep 600", timeout='shift 3; exec "$REAL" -k 1 3 "$@"')
    cli("submit", cwd=project, env=path, code=3)
    assert counts(cli, project).get("done", 0) == 0 or reached
    executed_once(project, cluster, cli)


@needs("slurm")
def test_runs_that_slurm_may_still_have_are_not_passed_over(cluster: Cluster, shared: Path, cli: Cli) -> None:
    """The same command at once: there is something to do, but not yet."""
    project = planned(shared / "p", cluster, cli, grace_s=3600)
    path = in_front(shared / "bin", sbatch="exit 1")
    cli("submit", cwd=project, env=path, code=3)
    (error,) = cli("submit", "--json", cwd=project, code=3).json()["errors"]
    assert error["message"].startswith("sbatch gave no clear answer about 3 runs ")
    assert "3 submitting: being sent right now, or sbatch gave no clear answer" in cli("status", cwd=project).stdout


@needs("slurm")
def test_two_submissions_at_once(cluster: Cluster, shared: Path, cli: Cli) -> None:
    """From two login nodes: host names of their own. The second one waits for the first, and finds nothing left."""
    project = planned(shared / "p", cluster, cli, runs=5)
    path = in_front(shared / "bin", sbatch='sleep 2; exec "$REAL" "$@"')
    commands = [
        subprocess.Popen(
            ["unshare", "-u", "sh", "-c", f"hostname login{number}; exec {campaign_command()} submit"],
            cwd=project, env=os.environ | path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for number in (1, 2)
    ]  # fmt: skip
    answers = [command.communicate(timeout=240) for command in commands]
    assert [command.returncode for command in commands] == [0, 0], answers
    waited = [stderr for _, stderr in answers if "waiting for `campaign submit` of " in stderr]
    assert len(waited) == 1, answers
    assert re.search(r"on login[12] \(pid \d+, since ", waited[0])
    executed_once(project, cluster, cli, runs=5)
