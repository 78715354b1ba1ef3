"""Harness of the fault drills: a campaign driven through its command line while things are broken, and what is left.

Judged is never by what `campaign` says alone: every rank appends a line to a file when it starts and one when it ends,
and ledger and store are read past the program.

    python -m tests.slurm.faults table FILE      as Markdown, what CAMPAIGN_FAULT_TABLE=FILE made a test run write

CAMPAIGN_RECORD=1 records what Slurm's programs print meanwhile into tests/data/slurm/22.05.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from campaign.errors import EXIT_NOT_NOW, EXIT_OK
from campaign.slurm.queries import SACCT_FIELDS, SQUEUE_FORMAT
from tests.conftest import Result, campaign_command
from tests.slurm.projects import make_project, study
from tests.slurm.testbed import Cluster, Testbed
from tests.waiting import wait_for

# read when the module is loaded: tests themselves see no CAMPAIGN_ variable
TABLE_FILE = os.environ.get("CAMPAIGN_FAULT_TABLE")
RECORD = os.environ.get("CAMPAIGN_RECORD") == "1"
SQUEUE = ("squeue", "-h", "-r", "-t", "all", "-u", "root", "-o", SQUEUE_FORMAT)
"""As campaign.slurm.commands asks."""
SETTLED_S = 3.0
FIXTURES = Path(__file__).parents[1] / "data" / "slurm" / "22.05"

WORK = """
import os, sys, time

name, mode = sys.argv[1:]
who = [os.environ[key] for key in ("CAMPAIGN_RUN_ID", "CAMPAIGN_ATTEMPT", "RANK")]

def tell(tally):
    descriptor = os.open(tally, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(descriptor, (" ".join([name, *who]) + chr(10)).encode())
    os.close(descriptor)

tell("starts")
end = time.monotonic() + 600
if who[1] == "1":
    while mode == "wait" and not os.path.exists(os.path.join("go", name)) and time.monotonic() < end:
        time.sleep(0.05)
    hog = []
    while mode == "hog":
        hog.append(bytearray(os.urandom(1 << 20)) * 16)
tell("ends")
"""
"""A rank: tells that it starts, waits to be let go (in its first attempt), tells that it ends."""

Pair = tuple[str, str | None]
"""State and fail_class of a run."""
Place = tuple[str, ...]
"""Study, run, attempt, rank: a line of a tally."""


def work(name: str, mode: str = "wait", **more: Any) -> dict[str, Any]:
    """A study whose ranks do WORK on a few cores of one node."""
    resources = {"cpus_per_rank": 2} | more.pop("resources", {})
    command = [sys.executable, "work.py", name, mode]
    return study(command, walltime=more.pop("walltime", "00:10:00"), resources=resources, **more)


class Drill:
    """One project on the bed, driven from a login node of its own environment."""

    def __init__(
        self,
        bed: Testbed,
        folder: Path,
        studies: Mapping[str, dict[str, Any]],
        *,
        site: str = "vega",
        run_root: Path | None = None,
        **env: str,
    ) -> None:
        """Make the project. `env` is added to the environment of every command."""
        self.bed = bed
        self.project = folder
        self.site = site
        self.cluster: Cluster = bed.cluster(site)
        make_project(folder, site, studies=dict(studies))
        self.run_root = run_root or folder / "runs"
        config = json.loads((folder / "campaign.yaml").read_text())
        config["paths"][site]["run_root"] = str(self.run_root)
        (folder / "campaign.yaml").write_text(json.dumps(config))
        (folder / "work.py").write_text(WORK)
        for name in ("go", "home"):
            (folder / name).mkdir()
        self._change_site(accounting=site not in bed.settings.without_accounting)
        foreign = ("CAMPAIGN_", "SLURM_", "SBATCH_", "PYTEST_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        place = {"HOME": str(folder / "home"), "TZ": "UTC", "SLURM_CONF": str(self.cluster.slurm_conf)}
        self.env = kept | place | env
        self.slow: list[tuple[float, str]] = []
        """Seconds that each command took."""

    def _change_site(self, *, accounting: bool) -> None:
        """Set what drills need in the site file: soon lost, soon given back; small jobs that share nodes."""
        path = self.project / "sites" / f"{self.site}.yaml"
        text = path.read_text()
        changes = {r"adopt_grace_s: \d+": "adopt_grace_s: 5", r"lost_after_s: \d+": "lost_after_s: 15"}
        if self.site == "vega":
            changes[r"sbatch_args: \{exclusive: true\}"] = "sbatch_args: {}"
        if not accounting:
            changes["accounting: true"] = "accounting: false"
        for pattern, new in changes.items():
            text, count = re.subn(pattern, new, text)
            assert count == 1, f"{path}: no {pattern}"
        path.write_text(text)

    # -- the program -------------------------------------------------------------------------------------------------

    def cli(self, *argv: str, code: int | None = 0, timeout: float = 120) -> Result:
        """The real `campaign` command in the project; `code`: what it must end with, None: anything."""
        began = time.monotonic()
        answer = subprocess.run(
            [campaign_command(), *argv], cwd=self.project, env=self.env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip
        self.slow.append((time.monotonic() - began, " ".join(argv)))
        result = Result(argv, answer.returncode, answer.stdout, answer.stderr)
        assert code is None or result.code == code, str(result)
        return result

    def plan(self, *studies: str, more: Sequence[str] = ()) -> None:
        """Plan studies."""
        self.cli("plan", self.site, *(word for name in studies for word in ("--study", name)), *more)

    def submit(self, *studies: str, code: int = 0) -> Result:
        """Queue what is planned of these studies."""
        return self.cli("submit", *(word for name in studies for word in ("--study", name)), code=code)

    def poll(self) -> Result:
        """Ask the schedulers now; one that is away is told by the exit code."""
        answer = self.cli("status", "--force", "--json", code=None)
        assert answer.code in (EXIT_OK, EXIT_NOT_NOW), str(answer)
        return answer

    def states(self, *studies: str) -> list[str]:
        """States of the runs of these studies, after asking Slurm."""
        self.poll()
        return sorted(state for state, _ in self.runs(*studies).values())

    def until(self, study: str, *states: str) -> None:
        """Wait until the runs of a study are in these states (one each)."""
        wanted = sorted(states)
        wait_for(lambda: self.states(study) == wanted, what=lambda: f"{self.endings(study)}\n{self.squeue()}")

    # -- past the program --------------------------------------------------------------------------------------------

    def query(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Rows of the ledger, which is only read."""
        with sqlite3.connect(f"file:{self.project / '.campaign' / 'ledger.sqlite'}?mode=ro", uri=True) as db:
            return db.execute(sql, values).fetchall()

    def runs(self, *studies: str) -> dict[str, Pair]:
        """State and class of every run, by id."""
        marks = ", ".join("?" * len(studies))
        rows = self.query(f"SELECT run_id, state, fail_class FROM runs WHERE study IN ({marks}) ORDER BY ord", *studies)
        return {run_id: (state, fail_class) for run_id, state, fail_class in rows}

    def endings(self, *studies: str) -> list[Pair]:
        """States and classes of the runs of these studies, sorted."""
        return sorted(self.runs(*studies).values(), key=str)

    def job(self, study: str, place: int = 0) -> str:
        """`JOBID_INDEX` of the newest attempt at the run that was planned as number `place` of its study."""
        rows = self.query(
            "SELECT job_id, array_index FROM runs JOIN jobs USING (run_id) WHERE study = ? AND jobs.attempt = "
            "runs.attempts ORDER BY ord", study
        )  # fmt: skip
        job_id, index = rows[place]
        return f"{job_id}_{index}"

    def tally(self, name: str, study: str | None = None) -> list[Place]:
        """Lines of `starts` or `ends`, of one study or of all."""
        path = self.project / name
        lines = [tuple(line.split()) for line in path.read_text().splitlines()] if path.exists() else []
        return [line for line in lines if study in (None, line[0])]

    def began(self, study: str, ranks: int = 1) -> None:
        """Wait until so many ranks of a study have started."""
        wait_for(
            lambda: len(self.tally("starts", study)) >= ranks,
            what=lambda: f"{study}: {self.tally('starts', study)}\n{self.squeue()}",
        )

    def go(self, *studies: str) -> None:
        """Let the waiting ranks of these studies go on."""
        for name in studies:
            (self.project / "go" / name).touch()

    def squeue(self) -> str:
        """What is queued, for messages."""
        return self.cluster.run("squeue", "-o", "%i %j %T %N %r", check=False).stdout

    def admin(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A command of Slurm's, by hand."""
        return self.cluster.run(*argv, check=check)

    def resume(self, node: str) -> None:
        """Give a drained node back to Slurm."""
        self.admin("scontrol", "update", f"nodename={node}", "state=resume", check=False)
        self.bed.wait_node(self.site, node, "idle", "mixed", "allocated")

    def nodes_of(self, job: str) -> list[str]:
        """Names of the nodes of a running job, its first (the head's) first."""
        shown = self.admin("scontrol", "show", "job", job, "--oneliner").stdout
        (names,) = re.findall(r" NodeList=(\S+)", shown)
        return self.admin("scontrol", "show", "hostnames", names).stdout.split()

    def processes(self, job: str, words: str) -> list[int]:
        """Pids (of this machine) of a job's processes whose command line holds `words`."""
        array, _, index = job.partition("_")
        marks = (f"SLURM_ARRAY_JOB_ID={array}\0".encode(), f"SLURM_ARRAY_TASK_ID={index}\0".encode())
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                environment = (entry / "environ").read_bytes()
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if words in line and all(mark in environment for mark in marks):
                found.append(int(entry.name))
        return found

    def store(self) -> dict[str, tuple[Any, ...]]:
        """What the store says of every run, without collecting first."""
        sql = "SELECT run_id, study, state, fail_class, attempts FROM runs"
        rows = self.cli("sql", "--no-collect", "--json", sql).json()["data"]["rows"]
        return {row[0]: tuple(row[1:]) for row in rows}

    def ledger(self) -> dict[str, tuple[Any, ...]]:
        """The same of the ledger."""
        rows = self.query("SELECT run_id, study, state, fail_class, attempts FROM runs")
        return {row[0]: tuple(row[1:]) for row in rows}

    # -- recording ---------------------------------------------------------------------------------------------------

    def record(self, name: str, study: str) -> None:
        """With CAMPAIGN_RECORD=1: keep what Slurm says of a study's jobs now, under `name`."""
        if not RECORD:
            return
        places = range(len(self.runs(study)))
        jobs = ",".join(sorted({self.job(study, place).partition("_")[0] for place in places}))
        squeue, sacct = (*SQUEUE, "-j", jobs), ("sacct", "-X", "-P", "-n", "-j", jobs, "-o", SACCT_FIELDS)
        # what Slurm says settles within seconds: reasons after the next look of the scheduler, sacct later still
        said, since = "", time.monotonic()
        while time.monotonic() - since < SETTLED_S:
            now = "".join(self.admin(*argv, check=False).stdout for argv in (squeue, sacct))
            said, since = now, since if now == said else time.monotonic()
            time.sleep(0.1)
        self.keep(f"{name}.squeue", *squeue)
        self.keep(f"{name}.sacct", *sacct)

    def keep(self, name: str, *argv: str) -> None:
        """With CAMPAIGN_RECORD=1: keep what a command prints (stderr when it fails), below the command itself."""
        if not RECORD:
            return
        answer = self.cluster.run(*argv, check=False, env={"TZ": "UTC", "SLURM_TIME_FORMAT": "standard"})
        text = f"# {' '.join(argv)}\n# exit code {answer.returncode}\n{answer.stdout}{answer.stderr}"
        # nothing of the machine that made it
        for real, neutral in ((str(self.bed.layout.root), "/bed"), (socket.gethostname(), "login")):
            text = text.replace(real, neutral)
        FIXTURES.mkdir(parents=True, exist_ok=True)
        (FIXTURES / f"{name}.txt").write_text(text)


# -- what is left of a fault -----------------------------------------------------------------------------------------


@dataclass
class Row:
    """One line of the fault table."""

    fault: str
    runs_before: int
    runs_after: int
    twice: int
    """Ranks that started more than once in one attempt."""
    lost: int
    """Runs that ledger or store don't have any more."""
    state: list[str]
    """How the first attempts ended, with the class of failure, e.g. `2 failed (node)`."""
    retried: list[str]
    """How the runs stand after `campaign retry`."""


@dataclass
class Drilled:
    """One fault: which studies it hit, and what was seen."""

    name: str
    studies: tuple[str, ...]
    before: frozenset[str] = frozenset()
    """Runs in the ledger before the fault."""
    first: list[Pair] = field(default_factory=list)
    """How their first attempts ended."""
    last: list[Pair] = field(default_factory=list)
    """How they stand after the retry."""
    error: BaseException | None = None
    """What went wrong while the fault was produced."""


def row(drill: Drill, done: Drilled) -> Row:
    """The line of a fault that is over."""
    after = set(drill.runs(*done.studies))
    store = {run_id for run_id, values in drill.store().items() if values[0] in done.studies}
    starts = Counter(line for name in done.studies for line in drill.tally("starts", name))
    return Row(
        fault=done.name,
        runs_before=len(done.before),
        runs_after=len(done.before & after & store),
        twice=sum(count - 1 for count in starts.values()),
        lost=len(done.before - (after & store)),
        state=_summary(done.first),
        retried=_summary(done.last),
    )


def _summary(endings: Iterable[Pair]) -> list[str]:
    counts = Counter(state if fail_class is None else f"{state} ({fail_class})" for state, fail_class in endings)
    return [f"{count} {name}" for name, count in sorted(counts.items())]


def same_in_store(drill: Drill) -> None:
    """Collect, and compare: the store has the ledger's runs in the ledger's states, and so has one made anew."""
    drill.cli("collect", "--json")
    ledger = drill.ledger()
    assert drill.store() == ledger
    drill.cli("collect", "--rebuild", "--json")
    assert drill.store() == ledger


def write_table(rows: Iterable[Row]) -> None:
    """Write the rows where CAMPAIGN_FAULT_TABLE says."""
    if TABLE_FILE:
        Path(TABLE_FILE).write_text(json.dumps([asdict(line) for line in rows], indent=1) + "\n")


def markdown(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The fault table, line by line."""
    yield "| fault | runs before | after | twice | lost | first attempts | after retry |"
    yield "|---|---|---|---|---|---|---|"
    for line in rows:
        cells = [line[name] for name in ("fault", "runs_before", "runs_after", "twice", "lost")]
        yield f"| {' | '.join(map(str, [*cells, ', '.join(line['state']), ', '.join(line['retried'])]))} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.slurm.faults")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("table").add_argument("file", type=Path)
    arguments = parser.parse_args()
    print("\n".join(markdown(json.loads(arguments.file.read_text()))))


def clear_recorded() -> None:
    """With CAMPAIGN_RECORD=1: drop what was recorded before."""
    if RECORD:
        shutil.rmtree(FIXTURES, ignore_errors=True)


if __name__ == "__main__":
    main()
