"""Did every run execute exactly once? Slurm's accounting and a file that the runs write say so, never the ledger.

Every run appends `RUN_ID JOB` to the file `tally` of its project (O_APPEND, one short line). Accounting is asked for
the jobs by name, which is the tag that `submit` gave them, and for any other job that was sent from the project's
folder.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.slurm.testbed import Cluster
from tests.slurm.testbed.cluster import FINAL_STATES
from tests.waiting import wait_for

SINCE = "now-2hours"
LITTER = (".submission_file_*", "*.part", "*.tmp", "*-journal", "a*.partial")
"""Names of what exists only while something is being written."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What accounting and tally say of the runs of one project."""

    runs: int
    lost: tuple[str, ...]
    """Runs that never executed."""
    twice: tuple[str, ...]
    """Runs that executed more than once."""
    jobs: int
    """Jobs (array elements) that accounting knows."""
    unrun: int
    """Of those, jobs that ended without executing a run: another one had it."""
    unknown: tuple[str, ...]
    """Jobs that executed a run and of which accounting says something else than COMPLETED, or nothing."""
    litter: tuple[str, ...]
    """What a killed command left half-written, and the repeated one didn't tidy up."""

    @property
    def good(self) -> bool:
        """Exactly one executed job for every run, and nothing half-written."""
        return not (self.lost or self.twice or self.unknown or self.litter)

    def words(self) -> Iterator[str]:
        """What is wrong."""
        for name in ("lost", "twice", "unknown", "litter"):
            found = getattr(self, name)
            if found:
                yield f"{name}: {', '.join(found)}"

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Job:
    """One job, or one array element, as accounting knows it."""

    job_id: str
    name: str
    state: str


def tally(root: Path) -> dict[str, list[str]]:
    """The jobs that executed each run, from the file that the runs append to."""
    jobs: dict[str, list[str]] = {}
    path = root / "tally"
    for line in path.read_text().splitlines() if path.exists() else ():
        run_id, job = line.split()
        jobs.setdefault(run_id, []).append(job)
    return jobs


def tags(root: Path) -> list[str]:
    """Names of all jobs that `submit` may have sent: its folders."""
    return sorted(path.name for path in (root / "runs" / "submit").glob("*") if path.is_dir())


def accounted(cluster: Cluster, root: Path) -> list[Job] | None:
    """What `sacct -X` knows of the project's jobs: by name, and by the folder that they were sent from.

    None when it gave no answer.
    """
    fields = ("-o", "JobID,JobName,State,WorkDir")
    names = set(tags(root))
    answer = _ask(cluster, "sacct", "-X", "-P", "-n", "-S", SINCE, *fields)
    if answer is None:
        return None
    jobs = []
    for row in answer.splitlines():
        job_id, name, state, folder = row.split("|")
        if name in names or Path(folder) == root:
            jobs.append(Job(job_id, name, state.split()[0]))
    return jobs


def jobs_ended(cluster: Cluster, root: Path) -> bool:
    """True when the controller has no job of the project any more and accounting has the end of every array element."""
    names = tags(root)
    if names and _ask(cluster, "squeue", "-h", "-r", "-o", "%i", f"--name={','.join(names)}") != "":
        return False
    jobs = accounted(cluster, root)
    if jobs is None or any(job.state not in FINAL_STATES for job in jobs):
        return False
    executed = {job for found in tally(root).values() for job in found}
    elements = Counter(job.name for job in jobs)
    return executed <= {job.job_id for job in jobs} and all(
        count % _elements(root, name) == 0 for name, count in elements.items()
    )


def judge(cluster: Cluster, root: Path, runs: Iterable[str]) -> Judgement:
    """Judge the project in `root`, whose planned runs are `runs`; its jobs have ended."""
    wanted = list(runs)
    executed = tally(root)
    jobs = wait_for(functools.partial(_by_id, cluster, root), what="an answer of sacct", interval=0.5)[0]
    ran = [job for found in executed.values() for job in found]
    return Judgement(
        runs=len(wanted),
        lost=tuple(run for run in wanted if run not in executed),
        twice=tuple(f"{run} in {' and '.join(found)}" for run, found in executed.items() if len(found) > 1),
        jobs=len(jobs),
        unrun=len(set(jobs) - set(ran)),
        unknown=tuple(job for job in ran if job not in jobs or jobs[job].state != "COMPLETED"),
        litter=tuple(_litter(root)),
    )


def _by_id(cluster: Cluster, root: Path) -> tuple[dict[str, Job], ...]:
    """What accounting knows, in a tuple; () when it gave no answer."""
    jobs = accounted(cluster, root)
    return () if jobs is None else ({job.job_id: job for job in jobs},)


def _ask(cluster: Cluster, *argv: str) -> str | None:
    """What one of Slurm's programs said, None when it failed. In a session of its own: Ctrl-C doesn't concern it."""
    answer = cluster.run(*argv, check=False, start_new_session=True)
    return answer.stdout.strip() if answer.returncode == 0 else None


def _elements(root: Path, tag: str) -> int:
    """Array elements of a submission; 1 when its specs can't be read."""
    try:
        lines = (root / "runs" / "submit" / tag / "specs.jsonl").read_text().splitlines()
        return len({json.loads(line)["array_index"] for line in lines}) or 1
    except (OSError, ValueError, KeyError):
        return 1


def _litter(root: Path) -> Iterator[str]:
    for pattern in LITTER:
        for path in sorted(root.rglob(pattern)):
            yield str(path.relative_to(root))
    for folder in sorted((root / "runs" / "submit").glob("*")):
        specs = folder / "specs.jsonl"
        if not specs.exists():
            yield f"{folder.relative_to(root)} without specs.jsonl"
            continue
        try:
            whole = specs.read_bytes().endswith(b"\n") and [json.loads(line) for line in specs.read_text().splitlines()]
        except ValueError:
            whole = False
        if not whole:
            yield f"{specs.relative_to(root)} is not whole"
