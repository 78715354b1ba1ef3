"""Faults that need a project of their own: a full run root, a cluster whose clock is wrong, no accounting."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.slurm.faults import Drill, work
from tests.slurm.jobdrives import kill
from tests.slurm.testbed import Testbed
from tests.waiting import wait_for

FULL = "gn07"
FULL_STUDIES = {
    "full": work("full", resources={"nodelist": FULL}),
    "unsent": work("unsent", resources={"nodelist": FULL}),
}
CLOCK_STUDIES = {"clock": work("clock", resources={"nodelist": "gn01"}),
                 "nohead": work("nohead", resources={"nodelist": "gn01"}),
                 "taken": work("taken", resources={"nodelist": "gn01", "cpus_per_rank": 128})}  # fmt: skip
BARE_STUDIES = {"bare": work("bare"), "gone": work("gone"), "killed": work("killed")}


@contextmanager
def small_run_root(bed: Testbed, folder: Path) -> Iterator[None]:
    """A file system of 4 MiB in `folder`, seen by the login side and by one node."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=1777", "none", str(folder)], check=True)
    try:
        # a node sees what was mounted when it was switched on
        bed.node_kill("vega", FULL)
        bed.node_up("vega", FULL)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


SHIFTED = """#!{python}
import datetime, re, subprocess, sys

shift = datetime.timedelta(minutes={minutes})

def moved(text, by):
    moment = lambda match: (datetime.datetime.fromisoformat(match[0]) + by).isoformat(timespec="seconds")
    return re.sub(r"\\d{{4}}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d", moment, text)

argv = ["{real}", *(moved(word, -shift) for word in sys.argv[1:])]
answer = subprocess.run(argv, capture_output=True, text=True)
sys.stdout.write(moved(answer.stdout, shift))
sys.stderr.write(answer.stderr)
sys.exit(answer.returncode)
"""
"""A program of Slurm's on a cluster whose clock is wrong: what it prints is moved, what it is given is moved back."""


def wrong_clock(minutes: int, folder: Path) -> dict[str, str]:
    """The environment of a login node on which squeue and sacct speak for a cluster whose clock is wrong by so much."""
    folder.mkdir(parents=True)
    for name in ("squeue", "sacct"):
        shim = folder / name
        shim.write_text(SHIFTED.format(python=sys.executable, minutes=minutes, real=shutil.which(name)))
        shim.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def fill(folder: Path) -> None:
    """Leave no byte free."""
    with (folder / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            pass


def full(drill: Drill) -> None:
    """The run root is full while a run runs, and when another is to be queued."""
    root = drill.run_root
    drill.submit("full")
    drill.began("full")
    fill(root)
    answer = drill.submit("unsent", code=2)
    assert "No space left" in answer.stderr, answer
    assert drill.endings("unsent") == [("planned", None)]
    drill.go("full", "unsent")


def room(drill: Drill) -> None:
    """There is room again."""
    (drill.run_root / "filler").unlink()
    drill.submit("unsent")


def clock(drill: Drill) -> None:
    """One run ends well, one loses its head, one is cancelled by hand while it waits."""
    drill.submit("clock", "nohead")
    drill.began("clock")
    drill.began("nohead")
    drill.submit("taken")
    drill.admin("scancel", drill.job("taken").partition("_")[0])
    kill(drill, "nohead", "campaign.job.head")
    drill.go("clock", "taken", "nohead")


def bare(drill: Drill) -> None:
    """Without accounting: a run that ends well, one whose head is killed, one that is cancelled while it waits."""
    drill.submit("bare")
    drill.submit("killed")
    drill.began("bare")
    drill.began("killed")
    kill(drill, "killed", "campaign.job.head")
    drill.admin("scontrol", "update", "partitionname=booster", "state=down")
    drill.submit("gone")
    job = drill.job("gone").partition("_")[0]
    drill.admin("scancel", job)
    wait_for(lambda: drill.cluster.job_state(job) in ("CANCELLED", ""), what=drill.squeue)
    drill.admin("scontrol", "update", "partitionname=booster", "state=up")
    drill.go("bare", "gone", "killed")
