"""Kills `campaign submit` from outside, at a chosen system call or moment, and sees what becomes of its runs.

A kill has a *point* (`Point`): a cluster, a scene, a system call and its ordinal, and who dies.

- fsync, rename: `strace -e inject=CALL:signal=SIGKILL:when=K`: it dies as it enters the call, which isn't made.
- execve: strace counts calls per process, and every program that `submit` starts is a process of its own. So strace
  stops each of them with SIGSTOP when it has become its program, and the K-th is where SIGKILL strikes: the program
  (its answer is never seen), or `submit`, whose program goes on without it.
- random: SIGKILL after a seeded part of the time that a `submit` takes, to it alone or to its process group.

Scenes: `first` is a new project; in `again` an earlier `submit` was killed after its first sbatch, before it had noted
the answer, so that the one which is struck has to adopt. `tests.slurm.killoracle` judges, by accounting and a tally.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from campaign.plan.build import build_plan, save_plan
from campaign.project import Project
from campaign.submit.ledger import Ledger
from tests.conftest import campaign_command
from tests.slurm.killoracle import Judgement, jobs_ended, judge, tally
from tests.slurm.projects import make_project, study
from tests.slurm.testbed import Cluster
from tests.waiting import wait_for

CLASSES = {
    "fsync": ("fsync", "fdatasync"),
    "rename": ("rename", "renameat", "renameat2"),
    "execve": ("execve", "execveat"),
}
SCENES = ("first", "again")
GRACE_S = 2
"""`adopt_grace_s` of these projects: short, so that an intent that came to nothing is soon planned again."""
PATIENCE_S = 240.0
TRIES = 5
_SOONER = 1_000_000
"""Added to the seed of a random kill that came too late: what is left of the time is divided once more."""
NOT_NOW = 3
"""Exit code of a command that may be repeated later."""

_CALL = re.compile(r"(\d+) +(\w+)\((.*)")
_STOPPED = re.compile(r"(\d+) +--- stopped by SIGSTOP ---")

# arrays of several elements and of one: two resource shapes, so two sbatch calls
_APPENDS = 'echo "$CAMPAIGN_RUN_ID $SLURM_ARRAY_JOB_ID"_"$SLURM_ARRAY_TASK_ID" >> tally'
STUDIES = {
    "array": study(["sh", "-c", _APPENDS], repeats=2),
    "single": study(["sh", "-c", _APPENDS], resources={"cpus_per_rank": 2}),
}


@dataclass(frozen=True, slots=True)
class Point:
    """Where one kill strikes."""

    cluster: str
    scene: str
    call: str
    """A system call, or `random`."""
    k: int
    """Its ordinal, from 1; of a random kill its number."""
    victim: str
    """submit, program (the process that calls execve) or group (random kills)."""
    seed: int = 0

    @property
    def kind(self) -> str:
        """The class of the kill, as tables name it."""
        calls = next((name for name, members in CLASSES.items() if self.call in members), "random")
        return calls if calls in ("fsync", "rename") else f"{calls}, {self.victim} dies"

    def earlier(self) -> Point:
        """The point to strike where this one came too late: the call before, or a sooner moment."""
        if self.call == "random":
            return dataclasses.replace(self, seed=self.seed + _SOONER)
        return dataclasses.replace(self, k=max(1, self.k - 1))

    def __str__(self) -> str:
        return f"{self.cluster}-{self.scene}-{self.call}{self.k}-{self.victim}-seed{self.seed}"


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of one `submit` that nobody disturbed."""

    counts: dict[str, int]
    answered: tuple[str, int]
    """The first rename after an sbatch that gave its answer, as (call, k)."""

    @classmethod
    def of_trace(cls, lines: Iterable[str]) -> Calls:
        """From strace's log: execve of all processes, the others of the first one, which is `submit`.

        The first call is the execve by which strace starts `submit`: no injection concerns it.
        """
        counts: Counter[str] = Counter()
        main, answered = "", ("", 0)
        for line in lines:
            if found := _CALL.match(line):
                pid, call, rest = found.groups()
                if not main:
                    main = pid
                elif pid == main or call in CLASSES["execve"]:
                    counts[call] += 1
                if call in CLASSES["rename"] and ".submission_file" in rest and not answered[1]:
                    answered = call, counts[call]
        return cls(dict(counts), answered)

    def points(self, kind: str, cluster: str, scene: str, seed: int = 0) -> list[Point]:
        """Every point of one class; for execve each of them with either victim."""
        victims = ("program", "submit") if kind == "execve" else ("submit",)
        return [
            Point(cluster, scene, call, k, victim, seed)
            for call in CLASSES[kind]
            for k in range(1, self.counts.get(call, 0) + 1)
            for victim in victims
        ]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the runs of one project whose `submit` was struck."""

    point: Point
    killed: bool
    """False: the command had ended before a random kill came."""
    judgement: Judgement
    repeats: int
    """How often `submit` was repeated."""
    seconds: float
    problems: tuple[str, ...] = ()
    """What the repeated commands did wrong, in words."""

    @property
    def good(self) -> bool:
        """Every run executed once, nothing half-written, no command that failed."""
        return self.judgement.good and not self.problems

    def __str__(self) -> str:
        said = "; ".join((*self.judgement.words(), *self.problems)) or "every run executed once"
        return f"{self.point} ({'killed' if self.killed else 'not killed'}, {self.seconds:.1f} s): {said}"


class Pace:
    """How long a `submit` takes just now: the median of the last ones. Shared by threads."""

    def __init__(self) -> None:
        self._last: deque[float] = deque([1.0], maxlen=15)

    def note(self, seconds: float) -> None:
        """One more."""
        self._last.append(seconds)

    @property
    def seconds(self) -> float:
        """The median."""
        return statistics.median(list(self._last))


@dataclass
class Sandbox:
    """One project with planned runs on one cluster."""

    cluster: Cluster
    root: Path
    pace: Pace = field(default_factory=Pace)
    runs: tuple[str, ...] = ()
    repeats: int = 0
    problems: list[str] = field(default_factory=list)

    def plan(self) -> None:
        """Write the project and plan its runs. Planned here and not by the command: that saves a second a kill."""
        make_project(self.root, self.cluster.name, studies=STUDIES)
        site = self.root / "sites" / f"{self.cluster.name}.yaml"
        text, count = re.subn(r"adopt_grace_s: \d+", f"adopt_grace_s: {GRACE_S}", site.read_text())
        assert count == 1, f"{site.name}: no adopt_grace_s to replace"
        site.write_text(text)
        project = Project(self.root)
        plan = build_plan(project, [self.cluster.name], list(STUDIES))
        save_plan(project, plan)
        with Ledger.open(project.ledger_path, new=True) as ledger:
            ledger.add_plan(plan)
        self.runs = tuple(run.run_id for run in plan.runs if run.can_run)
        assert len(self.runs) == sum(int(study["repeats"]) for study in STUDIES.values()), plan

    @property
    def env(self) -> dict[str, str]:
        """Of all commands. PATH has Slurm's folder first: looking for a program is one execve, not one per folder."""
        slurm = Path(shutil.which("sbatch") or "/usr/bin/sbatch").parent
        foreign = ("CAMPAIGN_", "PYTHONDONTWRITEBYTECODE", "XDG_", "SUBMITIT_")
        kept = {name: value for name, value in self.cluster.env.items() if not name.startswith(foreign)}
        path = f"{slurm}:{os.environ.get('PATH', os.defpath)}"
        return kept | {"HOME": str(self.root), "TZ": "UTC", "PATH": path}

    def start(self, *before: str, out: int = subprocess.DEVNULL, fds: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
        """`BEFORE campaign submit`, in a process group of its own."""
        # byte code is written with a rename: the calls of two processes would not be the same
        env = self.env | ({"PYTHONDONTWRITEBYTECODE": "1"} if before else {})
        return subprocess.Popen(
            [*before, campaign_command(), "submit"], cwd=self.root, env=env, stdin=subprocess.DEVNULL, stdout=out,
            stderr=subprocess.STDOUT, pass_fds=fds, start_new_session=True,
        )  # fmt: skip

    def states(self) -> Counter[str]:
        """Runs by state as the project sees them. Says when to repeat `submit`; judges nothing."""
        with Ledger.open(self.root / ".campaign" / "ledger.sqlite", write=False, wait_s=60) as ledger:
            return Counter(ledger.states(self.runs).values())

    def submit_again(self) -> bool:
        """`campaign submit`, undisturbed; True when nothing waits for another. TimeoutError when it keeps failing."""
        began = time.monotonic()
        command = self.start(out=subprocess.PIPE)
        said = command.communicate(timeout=PATIENCE_S)[0].decode(errors="replace")
        self.pace.note(time.monotonic() - began)
        self.repeats += 1
        if command.returncode not in (0, NOT_NOW):
            self.problems.append(f"`campaign submit` repeated -> {command.returncode}: {said.strip()[-400:]}")
            if len(self.problems) > 3:
                raise TimeoutError("it keeps failing")
        states = self.states()
        return not states["planned"] and not states["submitting"]

    def recover(self) -> None:
        """Repeat `submit` until nothing is left to queue, wait for the jobs, and repeat it until all has ended."""
        try:
            wait_for(self.submit_again, PATIENCE_S, what=lambda: f"still {dict(self.states())}", interval=0.5)
            wait_for(lambda: set(self.runs) <= set(tally(self.root)), PATIENCE_S, what="every run in the tally")
            wait_for(lambda: jobs_ended(self.cluster, self.root), PATIENCE_S, what="jobs that end", interval=1)
            wait_for(self._all_done, PATIENCE_S, what=lambda: f"not all done: {dict(self.states())}", interval=0.5)
        except TimeoutError as error:
            self.problems.append(str(error))

    def _all_done(self) -> bool:
        return self.submit_again() and self.states() == {"done": len(self.runs)}


def count_calls(sandbox: Sandbox) -> Calls:
    """The calls of a `submit` in this project, which is left to go on undisturbed."""
    log = sandbox.root / "trace"
    names = ",".join(f"?{name}" for names in CLASSES.values() for name in names)  # ?: some machines lack some
    command = sandbox.start("strace", "-f", "-o", str(log), "-e", f"trace={names}", "-e", "signal=none", "--",
                            out=subprocess.PIPE)  # fmt: skip
    said = command.communicate(timeout=PATIENCE_S)[0].decode(errors="replace")
    assert command.returncode in (0, NOT_NOW), f"`campaign submit` -> {command.returncode}: {said}"
    calls = Calls.of_trace(log.read_text().splitlines())
    log.unlink()
    return calls


def strike(sandbox: Sandbox, point: Point) -> bool:
    """Start `submit` and kill at the point. False when it had ended before that."""
    if point.call == "random":
        return _strike_at_random(sandbox, point)
    if point.call in CLASSES["execve"]:
        return _strike_at_program(sandbox, point)
    inject = f"inject={point.call}:signal=SIGKILL:when={point.k}"
    # strace ends as its process did
    command = sandbox.start("strace", "-o", os.devnull, "-e", f"trace={point.call}", "-e", inject, "--")
    return command.wait(PATIENCE_S) == -signal.SIGKILL


def _strike_at_random(sandbox: Sandbox, point: Point) -> bool:
    """After a seeded part of the time that a `submit` takes."""
    delay = random.Random(f"{point}").random() * sandbox.pace.seconds / (1 + point.seed // _SOONER)
    command = sandbox.start()
    try:
        command.wait(delay)
        return False
    except subprocess.TimeoutExpired:
        (os.killpg if point.victim == "group" else os.kill)(command.pid, signal.SIGKILL)
        return command.wait(PATIENCE_S) == -signal.SIGKILL


def _strike_at_program(sandbox: Sandbox, point: Point) -> bool:
    """At the k-th program: strace stops each as it begins, we let it go on or kill."""
    reads, writes = os.pipe()
    inject = f"inject={point.call}:signal=SIGSTOP"
    command = sandbox.start("strace", "-f", "-o", f"/dev/fd/{writes}", "-e", f"trace={point.call}", "-e", inject, "--",
                            fds=(writes,))  # fmt: skip
    os.close(writes)
    main, count = 0, 0
    with os.fdopen(reads, encoding="utf-8", errors="replace") as log:
        for line in log:
            main = main or int(line.split()[0])
            if stopped := _STOPPED.match(line):
                program = int(stopped[1])
                count += 1
                if count == point.k:
                    os.kill(program if point.victim == "program" else main, signal.SIGKILL)
                if count != point.k or point.victim == "submit":
                    with contextlib.suppress(ProcessLookupError):  # the death of `submit` may have taken it along
                        os.kill(program, signal.SIGCONT)
    command.wait(PATIENCE_S)
    return count >= point.k


def kill(cluster: Cluster, folder: Path, point: Point, calls: Calls, pace: Pace) -> Verdict:
    """One kill in a new project below `folder`, which is removed when all went well. `calls`: of the scene `first`.

    Where `submit` had ended before it was struck, another project is struck a little earlier.
    """
    verdict = _kill_once(cluster, folder, point, calls, pace)
    for _ in range(TRIES - 1):
        if verdict.killed or not verdict.good:
            break
        point = point.earlier()
        verdict = _kill_once(cluster, folder, point, calls, pace)
    return verdict


def _kill_once(cluster: Cluster, folder: Path, point: Point, calls: Calls, pace: Pace) -> Verdict:
    began = time.monotonic()
    sandbox = Sandbox(cluster, folder / str(point), pace)
    sandbox.plan()
    if point.scene == "again":
        _answer_unseen(sandbox, calls)
    killed = strike(sandbox, point)
    return conclude(sandbox, point, began, killed=killed)


def _answer_unseen(sandbox: Sandbox, calls: Calls) -> None:
    """Kill a `submit` that has its first job id and hasn't noted it."""
    point = Point(sandbox.cluster.name, "first", *calls.answered, "submit")
    if not strike(sandbox, point):
        sandbox.problems.append(f"the earlier kill ({point}) struck nothing")


def conclude(sandbox: Sandbox, point: Point, began: float, *, killed: bool) -> Verdict:
    """Repeat `submit` until all is done, and judge."""
    sandbox.recover()
    judgement = judge(sandbox.cluster, sandbox.root, sandbox.runs)
    verdict = Verdict(point, killed, judgement, sandbox.repeats, time.monotonic() - began, tuple(sandbox.problems))
    if verdict.good:
        shutil.rmtree(sandbox.root, ignore_errors=True)
    return verdict


def count_scenes(cluster: Cluster, folder: Path, pace: Pace) -> tuple[dict[str, Calls], list[Callable[[], Verdict]]]:
    """The calls of `submit` in either scene, and what brings their two projects to an end: they are judged too."""
    calls: dict[str, Calls] = {}
    rest: list[Callable[[], Verdict]] = []
    for scene in SCENES:
        point = Point(cluster.name, scene, "none", 0, "nobody")
        sandbox = Sandbox(cluster, folder / str(point), pace)
        sandbox.plan()
        if scene == "again":
            _answer_unseen(sandbox, calls["first"])
        calls[scene] = count_calls(sandbox)
        rest.append(functools.partial(conclude, sandbox, point, time.monotonic(), killed=False))
    return calls, rest
