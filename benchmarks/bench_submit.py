"""Thousands of jobs on a real slurmctld: what asking after them costs, and queueing against submitit and ReFrame.

Needs root and Slurm's programs (a test bed of its own is started and removed). All jobs are held: nothing runs, so what
is measured is the submitting itself and not a scheduler or the jobs.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import milliseconds, paired_ratios, row
from benchmarks.peers import SWEEP, reframe, reframe_seconds, submitit_seconds
from benchmarks.processes import Word, check, environment, tidy_when_told_to_end
from tests.slurm.counting import Calls
from tests.slurm.many import MANY, STUDY, bed_of_large_arrays, many_runs
from tests.slurm.testbed import Cluster
from tests.slurm.testbed.services import missing_packages
from tests.waiting import wait_for

CAMPAIGN = Path(sys.executable).with_name("campaign")
STATUS_CPU_S = 1.0
RUNS = 1000
ARRAY = 300
SUBMITIT_JOBS = 100
SUBMITIT_BOUND = 0.25
"""Per run, whole process against submitit's loop alone: an array of 300 leaves 1/300 of the sbatch calls, so what
remains is our own work for a run (spec, ledger), which must stay well below what one sbatch costs."""
REFRAME_BOUND = 0.25
"""Two whole commands against one, start-up included: a hundred runs are few enough for that to count."""

OWN_CPU = """
import atexit, resource, sys

def tell():
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(f"own-cpu {used.ru_utime + used.ru_stime}", file=sys.stderr)

atexit.register(tell)
from campaign.cli import main
sys.argv[0] = "campaign"
main()
"""


def run() -> list[dict[str, Any]]:
    """Rows of `status`, of sbatch calls, and of the two peers."""
    if os.geteuid() != 0:
        raise RuntimeError("a Slurm test bed is started by root only: sudo make bench")
    if packages := missing_packages():
        raise RuntimeError(f"no Slurm here: apt-get install {' '.join(packages)}")
    with tidy_when_told_to_end(), bed_of_large_arrays() as bed:
        cluster, shared = bed.cluster("vega"), bed.layout.shared
        return [
            _status(cluster, shared / "status"),
            *_submitit(cluster, shared / "submitit"),
            _reframe(cluster, shared / "reframe"),
        ]


# -- status ----------------------------------------------------------------------------------------------------------


def _status(cluster: Cluster, folder: Path) -> dict[str, Any]:
    """CPU seconds of the process of `status --force` itself, without squeue and sacct, which it waits for."""
    project = many_runs(folder, MANY, array_size=MANY)
    argv: list[Word] = [sys.executable, "-c", OWN_CPU, "status", "--force", "--project", project]
    with _emptied(cluster):
        _campaign(cluster, "plan", "vega", "--study", STUDY, "--project", project)
        _campaign(cluster, "submit", "--project", project)
        _count(cluster, MANY)
        spent = []
        for _ in range(8):
            said = check(argv, env=environment(cluster.env)).stderr.splitlines()
            spent.append(float(next(line.split()[1] for line in said if line.startswith("own-cpu "))))
    name = f"campaign status --force, {MANY:,} jobs pending: own CPU"
    # the first one learns all reasons and writes the byte code
    return row(name, spent[1:], "s", bound=STATUS_CPU_S, kind="max", detail="one array, held, on a real slurmctld")


# -- submitit --------------------------------------------------------------------------------------------------------


def _submitit(cluster: Cluster, folder: Path) -> Iterator[dict[str, Any]]:
    """1,000 runs of one shape by `campaign submit`, against one `executor.submit` of submitit for each run."""
    counted: list[int] = []

    def ours() -> float:
        shutil.rmtree(folder, ignore_errors=True)
        project = many_runs(folder / "project", RUNS, array_size=ARRAY)
        (folder / "bin").mkdir()
        calls = Calls.into(folder / "bin")
        _campaign(cluster, "plan", "vega", "--study", STUDY, "--project", project)
        with _emptied(cluster):
            begin = time.perf_counter()
            _campaign(cluster, "submit", "--project", project, env=calls.env)
            took = time.perf_counter() - begin
            _count(cluster, RUNS)
        counted.append(calls.count()["sbatch"])
        return took / RUNS

    def theirs() -> float:
        with _emptied(cluster):
            took = submitit_seconds(cluster, folder / "jobs", SUBMITIT_JOBS)
            _count(cluster, SUBMITIT_JOBS)
        return took / SUBMITIT_JOBS

    ratios, mine, peer = paired_ratios(ours, theirs, pairs=3)
    arrays = math.ceil(RUNS / ARRAY)
    yield row(
        f"sbatch calls for {RUNS:,} runs of one shape, at most {ARRAY} an array",
        counted,
        "calls",
        bound=arrays,
        kind="max",
        detail=f"ceil({RUNS} / {ARRAY}) = {arrays}; one sbatch per run would be {RUNS}",
    )
    detail = (
        f"{milliseconds(mine)} a run ({RUNS:,} runs, whole process) against {milliseconds(peer)} "
        f"({SUBMITIT_JOBS} jobs, submitit's submit calls alone, without its pause of 0.2 s between them)"
    )
    yield row("campaign submit / submitit, one sbatch per run: time per run", ratios, "x", bound=SUBMITIT_BOUND,
              kind="max", detail=detail)  # fmt: skip


# -- ReFrame ---------------------------------------------------------------------------------------------------------


def _reframe(cluster: Cluster, folder: Path) -> dict[str, Any]:
    """The same sweep as a study and as a parameterised run-only test, from the command until the last job is queued."""
    name = f"campaign plan and submit / ReFrame, sweep of {SWEEP} runs until all are queued"
    try:
        program = reframe()
    except RuntimeError as error:
        return {"name": name, "value": None, "unit": "x", "bound": REFRAME_BOUND, "kind": "max", "ok": False,
                "detail": str(error).splitlines()[0]}  # fmt: skip

    def ours() -> float:
        shutil.rmtree(folder, ignore_errors=True)
        project = many_runs(folder / "project", SWEEP)
        with _emptied(cluster):
            begin = time.perf_counter()
            _campaign(cluster, "plan", "vega", "--study", STUDY, "--project", project)
            _campaign(cluster, "submit", "--project", project)
            took = time.perf_counter() - begin
            _count(cluster, SWEEP)
        return took

    def theirs() -> float:
        with _emptied(cluster):
            took = reframe_seconds(program, cluster, folder / "reframe")
            _count(cluster, SWEEP)
        return took

    ratios, mine, peer = paired_ratios(ours, theirs, pairs=3, warmup=1)
    detail = f"{milliseconds(mine)} against {milliseconds(peer)} (asynchronous policy, no limit of concurrent jobs)"
    return row(name, ratios, "x", bound=REFRAME_BOUND, kind="max", detail=detail)


# -- both ------------------------------------------------------------------------------------------------------------


def _campaign(cluster: Cluster, *argv: str | Path, env: dict[str, str] | None = None) -> None:
    check([CAMPAIGN, *argv], env=environment(cluster.env | (env or {})))


def _queued(cluster: Cluster) -> int:
    return len(cluster.run("squeue", "--noheader", "--array", "--format=%i").stdout.splitlines())


def _count(cluster: Cluster, jobs: int) -> None:
    """A measurement of something else than it says is none."""
    there = _queued(cluster)
    if there != jobs:
        raise RuntimeError(f"{there} jobs are in the queue, not {jobs}")


@contextmanager
def _emptied(cluster: Cluster) -> Iterator[None]:
    """Whatever is queued inside is gone afterwards."""
    try:
        yield
    finally:
        cluster.run("scancel", "--user=root")
        wait_for(lambda: not _queued(cluster), what="the queue is empty")
