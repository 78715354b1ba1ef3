"""Kills `submit` a thousand times on the clusters of the test bed and writes what came of it into docs/evidence.

    python -m tests.slurm.soak                     1,000 kills: docs/evidence/kills.json and kills.md
    python -m tests.slurm.soak --kills 40 --out build/kills

Every fsync, rename and execve of a first `submit` and of one that has to adopt, on every cluster, and 200 random
moments; then all those calls again and again, up to the number that was asked for. Ctrl-C ends it after the kills that
are under way; the same command goes on from there. Exit 1 when a run was lost or executed twice, or something was left
half-written.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.slurm.killing import CLASSES, SCENES, Calls, Pace, Point, Verdict, count_scenes, kill
from tests.slurm.testbed import Settings, Testbed
from tests.slurm.testbed.lease import leased
from tests.slurm.testbed.settings import REPOSITORY

RANDOM_KILLS = 200
ClusterCalls = dict[str, dict[str, Calls]]
"""By cluster and scene."""


class State:
    """What has been done so far: a header and one line a kill, in a file that survives Ctrl-C."""

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        """Go on with the file when it has this header, else begin a new one."""
        self.path = path
        self.kills: list[dict[str, Any]] = []
        self.calls: ClusterCalls | None = None
        self.seconds = 0.0
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        if lines and lines[0] == header:
            for line in lines[1:]:
                self._take(line)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(header) + "\n")

    def _take(self, line: dict[str, Any]) -> None:
        if "calls" in line:
            self.calls = {
                cluster: {scene: Calls(calls["counts"], tuple(calls["answered"])) for scene, calls in scenes.items()}
                for cluster, scenes in line["calls"].items()
            }
        elif "kill" in line:
            self.kills.append(line["kill"])
        self.seconds += line.get("seconds", 0.0)

    def add(self, line: dict[str, Any]) -> None:
        """One more line, on disk."""
        self._take(line)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def schedule(calls: Mapping[str, Mapping[str, Calls]], kills: int, seed: int) -> list[Point]:
    """Which points are struck, in order: all of them and the random ones, shuffled; then all calls again."""

    def every_call(repeat: int) -> list[Point]:
        return [
            point
            for cluster, scenes in calls.items()
            for scene in SCENES
            for kind in CLASSES
            for point in scenes[scene].points(kind, cluster, scene, repeat)
        ]

    shuffle = random.Random(seed).shuffle
    clusters = list(calls)
    points = every_call(0) + [
        Point(clusters[n % len(clusters)], "first", "random", n, ("submit", "group")[n // len(clusters) % 2], seed)
        for n in range(RANDOM_KILLS)
    ]
    shuffle(points)
    repeat = 0
    while len(points) < kills:
        repeat += 1
        more = every_call(repeat)
        shuffle(more)
        points += more
    return points[:kills]


def as_json(planned: Point, verdict: Verdict) -> dict[str, Any]:
    """One kill for the state file."""
    return {
        "planned": str(planned),
        "point": asdict(verdict.point),
        "kind": verdict.point.kind,
        "killed": verdict.killed,
        "good": verdict.good,
        "repeats": verdict.repeats,
        "seconds": round(verdict.seconds, 2),
        "problems": list(verdict.problems),
        **verdict.judgement.to_json(),
    }


def strike_all(bed: Testbed, folder: Path, state: State, points: Sequence[Point], workers: int) -> bool:
    """Strike the points that the state doesn't have yet; False when Ctrl-C ended it."""
    assert state.calls is not None
    calls = state.calls
    done = {found["planned"] for found in state.kills}
    left = [point for point in points if str(point) not in done]
    pace, stop = Pace(), threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: stop.set())
    began, first = time.monotonic(), len(state.kills)
    under_way: dict[Future[Verdict], Point] = {}
    try:
        with ThreadPoolExecutor(workers) as pool:
            while under_way or (left and not stop.is_set()):
                while left and len(under_way) < workers and not stop.is_set():
                    point = left.pop(0)
                    first_calls = calls[point.cluster]["first"]
                    under_way[pool.submit(kill, bed.cluster(point.cluster), folder, point, first_calls, pace)] = point
                ended, _ = wait(under_way, timeout=1, return_when=FIRST_COMPLETED)
                for future in ended:
                    point = under_way.pop(future)
                    verdict = future.result()
                    state.add({"kill": as_json(point, verdict)})
                    each_s = (time.monotonic() - began) / (len(state.kills) - first)
                    _tell(state, len(points), each_s, verdict)
    finally:
        signal.signal(signal.SIGINT, before)
        state.add({"seconds": round(time.monotonic() - began, 1)})
    return not left


def _tell(state: State, total: int, each_s: float, verdict: Verdict) -> None:
    if not verdict.good:
        print(verdict, flush=True)
    count = len(state.kills)
    if count % 10 == 0 or count == total:
        lost, twice, unrun = (sum(_size(found[name]) for found in state.kills) for name in ("lost", "twice", "unrun"))
        left = f"{each_s * (total - count) / 60:.0f} min left"
        sums = f"{lost} runs lost, {twice} executed twice, {unrun} jobs ended unrun"
        print(f"{count}/{total} kills: {sums}; {left}", flush=True)


def _size(value: Any) -> int:
    return value if isinstance(value, int) else len(value)


def result(state: State, header: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    """The evidence as JSON."""
    assert state.calls is not None
    all_points = [
        point
        for cluster, scenes in state.calls.items()
        for scene, calls in scenes.items()
        for kind in CLASSES
        for point in calls.points(kind, cluster, scene)
    ]
    classes = []
    kinds = [*dict.fromkeys(point.kind for point in all_points), "random, submit dies", "random, group dies"]
    for kind in kinds:
        mine = [found for found in state.kills if found["kind"] == kind]
        struck = {str(Point(**{**found["point"], "seed": 0})) for found in mine if found["killed"]}
        there = sum(point.kind == kind for point in all_points) or len(struck)
        sums = {name: sum(_size(found[name]) for found in mine) for name in ("runs", "twice", "lost", "unrun", "jobs")}
        seconds = sum(found["seconds"] for found in mine)
        row = {"class": kind, "points": len(struck), "of": there, "kills": sum(found["killed"] for found in mine)}
        classes.append(row | sums | {"repeats": sum(found["repeats"] for found in mine), "seconds": round(seconds)})
    return {
        **about,
        **header,
        "kills": sum(found["killed"] for found in state.kills),
        "wall_s": round(state.seconds),
        "classes": classes,
        "calls": {
            cluster: {scene: calls.counts for scene, calls in scenes.items()} for cluster, scenes in state.calls.items()
        },
        "not_good": [found for found in state.kills if not found["good"]],
    }


def page(found: Mapping[str, Any]) -> str:
    """The evidence as Markdown."""

    def of(row: Mapping[str, Any]) -> str:
        return "" if row["class"].startswith("random") else f" of {row['of']}"

    sums = ("kills", "runs", "twice", "lost", "unrun", "seconds")
    total = {name: sum(row[name] for row in found["classes"]) for name in ("points", "of", *sums)} | {"class": "all"}
    rows = [
        f"| {row['class']} | {row['points']}{of(row)} | {' | '.join(str(row[name]) for name in sums)} |"
        for row in (*found["classes"], total)
    ]
    wrong = ("lost", "twice", "unknown", "litter", "problems")
    bad = [f"- `{row['planned']}`: {json.dumps({name: row[name] for name in wrong})}" for row in found["not_good"]]
    return PAGE.format(
        **{name: found[name] for name in ("date", "commit", "seed", "slurm", "cores")},
        clusters=", ".join(found["calls"]),
        minutes=round(found["wall_s"] / 60),
        rows="\n".join(rows),
        verdict="\n".join(["Not so:", "", *bad]) if bad else GOOD,
    )


PAGE = """\
# Evidence: kill -9 of `submit`

Written by `python -m tests.slurm.soak` (`make soak`); `tests/slurm/killing.py` says what is struck and how. Judged by
`sacct -X` and by a file to which every run appends its id, never by the ledger.

{date}, commit {commit}, seed {seed}, Slurm {slurm} ({clusters}), {cores} cores, {minutes} min.

| class | points | kills | runs | executed twice | lost | extra jobs that ended unrun | seconds, summed |
|---|---|---|---|---|---|---|---|
{rows}

{verdict}
"""
GOOD = """\
After every kill `submit` was repeated, each run had exactly one job that executed it, and nothing was left
half-written."""


def _said(*argv: str) -> str:
    return subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, check=False).stdout.strip()


def commit() -> str:
    """The commit that is struck; with `-dirty` when the tree has changes."""
    dirty = _said("git", "status", "--porcelain", "--untracked-files=no", "--", "campaign", "tests")
    return (_said("git", "rev-parse", "--short=12", "HEAD") or "unknown") + ("-dirty" if dirty else "")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit 0: every run executed once; 1: not so; 130: ended by Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m tests.slurm.soak", description="Kill `submit` many times.")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=4 * (os.cpu_count() or 1), help="kills at once")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "docs" / "evidence" / "kills", help="without suffix")
    parser.add_argument("--state", type=Path, default=REPOSITORY / "build" / "soak.jsonl", help="what is done so far")
    args = parser.parse_args(argv)
    header = {"commit": commit(), "seed": args.seed}
    state = State(args.state, header)
    with leased(Settings.from_environment()) as bed:
        folder = Path(tempfile.mkdtemp(prefix="soak-", dir=bed.layout.shared))
        folder.chmod(0o755)
        if state.calls is None:
            try:
                _count(bed, folder, state)
            except KeyboardInterrupt:
                return 130
        assert state.calls is not None
        complete = strike_all(bed, folder, state, schedule(state.calls, args.kills, args.seed), args.workers)
        cluster = bed.cluster(next(iter(state.calls)))
        slurm = cluster.run("sinfo", "--version").stdout.split()[-1]
    if not complete:
        print(f"{len(state.kills)} of {args.kills} kills done; the same command goes on from there", file=sys.stderr)
        return 130
    about = {"date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), "slurm": slurm, "cores": os.cpu_count()}
    found = result(state, header, about)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    args.out.with_suffix(".md").write_text(page(found), encoding="utf-8")
    print(page(found))
    return 1 if found["not_good"] else 0


def _count(bed: Testbed, folder: Path, state: State) -> None:
    """Which calls there are, on every cluster."""
    names = bed.settings.clusters
    with ThreadPoolExecutor(len(names)) as pool:
        found = list(pool.map(lambda name: count_scenes(bed.cluster(name), folder, Pace()), names))
        verdicts = list(pool.map(lambda rest: rest(), [rest for _, more in found for rest in more]))
    assert all(verdict.good for verdict in verdicts), [str(verdict) for verdict in verdicts]
    calls = {
        name: {scene: asdict(counted) for scene, counted in scenes.items()}
        for name, (scenes, _) in zip(names, found, strict=True)
    }
    state.add({"calls": calls})


if __name__ == "__main__":
    sys.exit(main())
