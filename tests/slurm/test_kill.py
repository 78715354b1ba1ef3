"""`kill -9` of `submit` at system calls and random moments: after it is repeated every run has one job that executes.

The long form is `python -m tests.slurm.soak`.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.needs import needs
from tests.slurm.killing import Calls, Pace, Point, Verdict, count_scenes, kill
from tests.slurm.testbed import Testbed
from tests.slurm.testbed.clusters import CLUSTERS

WORKERS = 8
"""Kills at once: most of the time each waits for Slurm."""
SEED = 20


@dataclass(frozen=True, slots=True)
class Draw:
    """One kill to draw: from the `part`-th of `parts` equal parts of the points of its class."""

    cluster: str
    kind: str
    scene: str
    part: int
    parts: int
    seed: int

    def point(self, calls: Mapping[str, Calls]) -> Point:
        """The point, once it is known which there are."""
        if self.kind == "random":
            return Point(self.cluster, self.scene, "random", self.part, ("submit", "group")[self.part - 1], self.seed)
        points = calls[self.scene].points(self.kind, self.cluster, self.scene, self.seed)
        first, last = (len(points) * part // self.parts for part in (self.part - 1, self.part))
        return random.Random(str(self)).choice(points[first:last])

    def __str__(self) -> str:
        return f"{self.cluster}-{self.scene}-{self.kind}-{self.part}of{self.parts}-seed{self.seed}"


_OF_EACH_CLUSTER = (
    ("fsync", "first", 3),
    ("fsync", "again", 1),
    ("rename", "first", 1),
    ("execve", "first", 2),
    ("execve", "again", 1),
    ("random", "first", 2),
)
DRAWS = [
    Draw(cluster, kind, scene, part, parts, SEED)
    for kind, scene, parts in _OF_EACH_CLUSTER
    for part in range(1, parts + 1)
    for cluster in CLUSTERS
]


@dataclass(frozen=True, slots=True)
class Struck:
    """What became of the kills of the tests that were selected."""

    kills: dict[Draw, Future[Verdict]]
    undisturbed: list[Future[Verdict]]
    """Projects whose `submit` only had its calls counted."""


@pytest.fixture(scope="module")
def struck(request: pytest.FixtureRequest, testbed: Testbed) -> Iterator[Struck]:
    """All kills, many projects at once on all clusters: one after another they would take a quarter of an hour."""
    items = [item for item in request.session.items if item.path == request.path and isinstance(item, pytest.Function)]
    draws: list[Any] = [item.callspec.params["draw"] for item in items if hasattr(item, "callspec")] or DRAWS
    folder = Path(tempfile.mkdtemp(prefix="kill-", dir=testbed.layout.shared))
    folder.chmod(0o755)
    pace = Pace()
    # the calls are the same on every cluster: the one that counts is as good as any
    calls, rest = count_scenes(testbed.cluster(draws[0].cluster), folder, pace)
    with ThreadPoolExecutor(WORKERS) as pool:
        undisturbed = [pool.submit(conclude) for conclude in rest]
        kills = {
            draw: pool.submit(kill, testbed.cluster(draw.cluster), folder, draw.point(calls), calls["first"], pace)
            for draw in draws
        }
    yield Struck(kills, undisturbed)
    if all(future.exception() is None and future.result().good for future in (*undisturbed, *kills.values())):
        shutil.rmtree(folder, ignore_errors=True)


@needs("slurm", "strace")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("draw", DRAWS, ids=str)
def test_every_run_executes_once_whatever_kills_submit(draw: Draw, struck: Struck) -> None:
    verdict = struck.kills[draw].result()
    assert verdict.good, str(verdict)
    assert verdict.killed, str(verdict)


@needs("slurm", "strace")
@pytest.mark.timeout(900)
def test_what_slurm_has_is_adopted_and_not_queued_again(struck: Struck) -> None:
    """Jobs that find their runs claimed do no harm, but cost time in the queue: a rare end of a slow sbatch."""
    undisturbed = [future.result() for future in struck.undisturbed]
    assert all(verdict.good for verdict in undisturbed), "; ".join(map(str, undisturbed))
    done = [*undisturbed, *(future.result() for future in struck.kills.values())]
    extra = {str(verdict.point): verdict.judgement.unrun for verdict in done if verdict.judgement.unrun}
    assert sum(extra.values()) <= len(done) // 10, f"jobs that ended unrun: {extra}"
