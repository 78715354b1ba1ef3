"""Planning must not be waited for: 10,000 and 100,000 runs, from YAML files to a plan on disk."""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import row
from campaign.plan.build import build_plan, save_plan
from campaign.project import Project

ROOT = Path(__file__).resolve().parent.parent
STUDY = """\
schema: 1
name: many
command: [python, train.py, --lr, "{{lr}}", --seed, "{{seed}}"]
params: {{hidden: 128, global_batch: 4096}}
scaling: strong
axes:
  nodes: [1, 2, 4, 8]
  strategy: [ddp, fsdp2]
  lr: [{rates}]
  seed: [{seeds}]
exclude: [{{nodes: 8, strategy: fsdp2, lr: 0.001}}]
repeats: 5
walltime: "00:30:00"
"""


def run() -> list[dict[str, Any]]:
    """Seconds, and the memory of this process at its height (an upper bound: it holds the interpreter too)."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            row("plan 10,000 runs", _seconds(Path(folder), 10_000, times=3), "s", bound=3, kind="max"),
            row("plan 100,000 runs", _seconds(Path(folder), 100_000, times=1), "s", bound=20, kind="max"),
        ]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [*rows, row("memory after planning 100,000 runs", [peak], "MiB", bound=500, kind="max")]


def _seconds(folder: Path, runs: int, *, times: int) -> list[float]:
    project = _project(folder / str(runs), runs)
    spent = []
    for _ in range(times):
        started = time.perf_counter()
        plan = build_plan(Project(project), ["juwels"], ["many"], account="bench")
        save_plan(Project(project), plan)
        spent.append(time.perf_counter() - started)
        assert 0.9 * runs < len(plan.runs) <= runs, len(plan.runs)
    return spent


def _project(folder: Path, runs: int) -> Path:
    """A project whose study makes about this many runs: 4 x 2 x 5 learning rates x seeds x 5 repeats."""
    for name in ("sites", "studies"):
        (folder / name).mkdir(parents=True)
    site = (ROOT / "sites" / "juwels.yaml").read_text(encoding="utf-8").replace("project: null", "project: bench")
    (folder / "sites" / "juwels.yaml").write_text(site, encoding="utf-8")
    seeds = ", ".join(str(seed) for seed in range(runs // (4 * 2 * 5 * 5)))
    rates = ", ".join(str(0.001 * (index + 1)) for index in range(5))
    (folder / "studies" / "many.yaml").write_text(STUDY.format(rates=rates, seeds=seeds), encoding="utf-8")
    return folder
