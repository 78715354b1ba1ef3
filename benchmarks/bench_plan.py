"""Planning must not be waited for: 10,000 and 100,000 runs, from YAML files to a plan on disk and in the ledger."""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.harness import row
from campaign.plan.build import build_plan, save_plan
from campaign.plan.store import run_texts
from campaign.project import Project
from campaign.submit.ledger import Ledger

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
    """CPU seconds (one thread, so the wall time of an idle machine), and the memory of a process that only plans."""
    rows = []
    peak_mib = 0.0
    # a new interpreter for each: what other benchmarks have used must not count
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        for runs, bound, times in ((10_000, 3.0, 3), (100_000, 20.0, 1)):
            with tempfile.TemporaryDirectory() as folder:
                cpu, wall, peak_mib = pool.submit(_plan, Path(folder), runs, times).result()
            detail = f"wall {min(wall):.1f} s, other load included"
            rows.append(row(f"plan {runs:,} runs, CPU time", cpu, "s", bound=bound, kind="max", detail=detail))
    return [*rows, row("memory after planning 100,000 runs", [peak_mib], "MiB", bound=500, kind="max")]


def _plan(folder: Path, runs: int, times: int) -> tuple[list[float], list[float], float]:
    """CPU and wall seconds of each plan, and the highest resident memory of this process in MiB."""
    cpu, wall = _seconds(folder, runs, times)
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    # not ru_maxrss: over fork and exec that keeps the parent's
    high_kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
    return cpu, wall, high_kib / 1024


def _seconds(folder: Path, runs: int, times: int) -> tuple[list[float], list[float]]:
    """CPU and wall seconds of each of `times` plans."""
    project = _project(folder / str(runs), runs)
    cpu, wall = [], []
    for _ in range(times):
        started = time.process_time(), time.perf_counter()
        plan = build_plan(Project(project), ["juwels"], ["many"], account="bench")
        path = save_plan(Project(project), plan)
        with Ledger.open(Project(project).ledger_path, new=True) as ledger:
            ledger.add_plan(plan, texts=run_texts(path))
        cpu.append(time.process_time() - started[0])
        wall.append(time.perf_counter() - started[1])
        assert 0.9 * runs < len(plan.runs) <= runs, len(plan.runs)
    return cpu, wall


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
