"""A small store with tables of the contract's view columns, filled from made-up runs.

The columns of `scaling` are worked out here by the contract's formulas, independently of the store's SQL, so that the
tests of figures and tables need no campaign to have run.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import pyarrow

TABLES = {
    "runs": "run_id VARCHAR, site VARCHAR, study VARCHAR, series VARCHAR, plan_id VARCHAR, workload VARCHAR, "
    "strategy VARCHAR, scaling VARCHAR, params JSON, nodes INTEGER, ranks_per_node INTEGER, world_size INTEGER, "
    "local_batch INTEGER, global_batch INTEGER, repeat INTEGER, state VARCHAR, fail_class VARCHAR, valid BOOLEAN, "
    "why_invalid VARCHAR, attempts INTEGER, superseded_by VARCHAR, oversubscribed BOOLEAN, gpu_h DOUBLE, node_h DOUBLE",
    "jobs": "run_id VARCHAR, attempt INTEGER, submitted TIMESTAMP, ended TIMESTAMP, commit VARCHAR, dirty BOOLEAN",
    "epochs": "run_id VARCHAR, attempt INTEGER, epoch INTEGER, warmup BOOLEAN, epoch_time_s DOUBLE, steps INTEGER, "
    "samples_unique BIGINT, data_wait_s DOUBLE, comm_exposed_s DOUBLE",
    "windows": 'run_id VARCHAR, attempt INTEGER, epoch INTEGER, "window" INTEGER, metric VARCHAR, unit VARCHAR, '
    "n INTEGER, min DOUBLE, median DOUBLE, max DOUBLE",
    "steps": "run_id VARCHAR, attempt INTEGER, rank INTEGER, step BIGINT, epoch INTEGER, data_wait_s DOUBLE, "
    "h2d_s DOUBLE, forward_s DOUBLE, backward_s DOUBLE, comm_exposed_s DOUBLE, optimizer_s DOUBLE, step_s DOUBLE",
    "phases": "run_id VARCHAR, attempt INTEGER, phase VARCHAR, n INTEGER, min_s DOUBLE, median_s DOUBLE, "
    "max_s DOUBLE, p99_s DOUBLE, slowest_node VARCHAR",
    "startup": "run_id VARCHAR, attempt INTEGER, staging VARCHAR, redirect BOOLEAN",
    "scaling": "site VARCHAR, study VARCHAR, series VARCHAR, world_size INTEGER, strategy VARCHAR, scaling VARCHAR, "
    "nodes INTEGER, gpus INTEGER, n INTEGER, n_excluded INTEGER, epoch_time_s DOUBLE, epoch_time_lo_s DOUBLE, "
    "epoch_time_hi_s DOUBLE, spread_kind VARCHAR, throughput_per_s DOUBLE, throughput_lo DOUBLE, throughput_hi DOUBLE, "
    "throughput_unit VARCHAR, speedup DOUBLE, efficiency DOUBLE, efficiency_lo DOUBLE, efficiency_hi DOUBLE, "
    "base_world_size INTEGER, samples_per_epoch BIGINT, samples_unique BIGINT, quantisation DOUBLE",
}
PHASES = (
    "staged", "agents_up", "launched", "python_up", "imports_done", "pg_ready", "first_collective", "first_batch",
    "first_step",
)  # fmt: skip
NEWEST = datetime(2026, 3, 4, 12, 30)


@dataclass
class Run:
    """One made-up run; times in seconds."""

    site: str = "juwels"
    study: str = "strong_scaling"
    strategy: str | None = "ddp"
    world_size: int = 4
    epoch_time_s: float | None = 10.0
    repeat: int = 0
    samples: int | None = 4096
    """Distinct samples of an epoch."""
    duplication: int = 1
    valid: bool | None = True
    """None: not ended."""
    why_invalid: str | None = None
    state: str = "done"
    gpus_per_rank: int = 1
    staging: str = "none"
    extra: str = ""
    """More of the series' text, such as `hidden=128 #1a2b3c`."""
    suffix: str = ""
    """What `scaling` appends to the series when it holds several batches."""
    revision: int = 0
    """A repeat measured again: another run, submitted later."""
    global_batch: int = 256
    params: dict[str, Any] = field(default_factory=lambda: {"hidden": 128, "lr": 0.001})
    base: int | None = None
    """Base world size; None: the smallest of the series."""
    has_base: bool = True
    phases: dict[str, tuple[float, float, float]] | None = None
    step_parts: dict[str, float] | None = None
    """Per step; written as windows."""
    epoch_parts: dict[str, float] | None = None
    """data_wait_s and comm_exposed_s of an epoch, for runs without windows."""
    steps: int = 16

    @property
    def series(self) -> str:
        return " ".join(part for part in (f"strategy={self.strategy}" if self.strategy else "", self.extra) if part)

    @property
    def run_id(self) -> str:
        identity = [self.site, self.study, self.series, self.world_size, self.repeat, self.valid, self.revision]
        identity += [self.global_batch, self.staging]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]


def fill(
    connection: duckdb.DuckDBPyConnection, runs: Iterable[Run], commits: tuple[str, ...] = ("a1b2c3d4e5f60718",)
) -> None:
    """Create the tables and put the runs in."""
    runs = list(runs)
    rows: dict[str, list[dict[str, Any]]] = {table: [] for table in TABLES}
    for index, run in enumerate(runs):
        rows["runs"].append(_run_row(run))
        rows["jobs"].append({
            "run_id": run.run_id, "attempt": 1, "submitted": NEWEST - timedelta(days=9 - run.revision),
            "ended": NEWEST - timedelta(hours=len(runs) - 1 - index),
            "commit": commits[index % len(commits)] if commits else None, "dirty": False,
        })  # fmt: skip
        rows["startup"].append({"run_id": run.run_id, "attempt": 1, "staging": run.staging, "redirect": True})
        for table, found in _measurements(run).items():
            rows[table] += found
    rows["scaling"] = scaling(runs)
    for table, columns in TABLES.items():
        connection.execute(f"CREATE TABLE {table} ({columns})")
        if rows[table]:
            names = dict.fromkeys(name for row in rows[table] for name in row)
            values = pyarrow.table({name: [row.get(name) for row in rows[table]] for name in names})
            connection.register("incoming", values)
            connection.execute(f"INSERT INTO {table} BY NAME FROM incoming")
            connection.unregister("incoming")


def _run_row(run: Run) -> dict[str, Any]:
    return {
        "run_id": run.run_id, "site": run.site, "study": run.study, "series": run.series, "plan_id": "p1",
        "workload": "training.workloads.hydrology", "strategy": run.strategy, "scaling": "strong",
        "params": json.dumps({**run.params, "global_batch": run.global_batch}), "nodes": max(1, run.world_size // 4),
        "ranks_per_node": min(4, run.world_size), "world_size": run.world_size, "global_batch": run.global_batch,
        "local_batch": max(1, run.global_batch // run.world_size), "repeat": run.repeat, "state": run.state,
        "valid": run.valid, "why_invalid": run.why_invalid, "attempts": 1, "oversubscribed": False,
    }  # fmt: skip


def _measurements(run: Run) -> dict[str, list[dict[str, Any]]]:
    key = {"run_id": run.run_id, "attempt": 1}
    epochs = [
        {
            **key, "epoch": epoch, "warmup": epoch == 0, "epoch_time_s": run.epoch_time_s * factor, "steps": run.steps,
            "samples_unique": run.samples, **(run.epoch_parts or {}),
        }
        for epoch, factor in enumerate((3.0, 0.75, 1.25))  # the slow warm-up epoch would move the median
        if run.epoch_time_s is not None
    ]  # fmt: skip
    windows = [
        {
            **key, "epoch": epoch, "window": window, "metric": metric, "unit": "s", "n": run.world_size,
            "min": seconds * factor * 0.9, "median": seconds * factor, "max": seconds * factor * 1.2,
        }
        for metric, seconds in (run.step_parts or {}).items()
        for epoch, window, factor in ((0, 0, 9.0), (1, 0, 0.5), (1, 1, 1.5), (2, 0, 1.0))
    ]  # fmt: skip
    phases = [
        {
            **key, "phase": phase, "n": run.world_size, "min_s": low, "median_s": middle, "max_s": high, "p99_s": high,
            "slowest_node": "n1",
        }
        for phase, (low, middle, high) in (run.phases or {}).items()
    ]  # fmt: skip
    return {"epochs": epochs, "windows": windows, "phases": phases}


def scaling(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Rows of `scaling` by contract section 2: medians of valid runs; lo/hi = min/max (the interval of n >= 5 too)."""
    series = defaultdict[tuple[str, str, str], list[Run]](list)
    for run in runs:
        if run.valid is not None:
            series[run.site, run.study, run.series + run.suffix].append(run)
    rows = []
    for (site, study, name), members in sorted(series.items()):
        base = members[0].base or min(run.world_size for run in members)
        base_times = _times(members, base)
        based = members[0].has_base and bool(base_times)
        for size in sorted({run.world_size for run in members}):
            here = [run for run in members if run.world_size == size]
            samples, times = here[0].samples, _times(members, size)
            low, middle, high = (min(times), median(times), max(times)) if times else (None, None, None)
            rate = samples / middle if samples and middle else None
            rates = [samples / value if samples and value and len(times) > 1 else None for value in (high, low)]
            base_rate = samples / median(base_times) if samples and based else None
            share = [value / base_rate * base / size if value and base_rate else None for value in (rate, *rates)]
            rows.append(
                {
                    "site": site, "study": study, "series": name, "world_size": size, "strategy": here[0].strategy,
                    "scaling": "strong", "nodes": max(1, size // 4), "gpus": size * here[0].gpus_per_rank,
                    "n": len(times), "n_excluded": sum(not run.valid for run in here),
                    "epoch_time_s": middle,
                    "epoch_time_lo_s": low if len(times) > 1 else None,
                    "epoch_time_hi_s": high if len(times) > 1 else None,
                    "spread_kind": "none" if len(times) < 2 else "minmax" if len(times) < 5 else "bootstrap95",
                    "throughput_per_s": rate, "throughput_lo": rates[0], "throughput_hi": rates[1],
                    "throughput_unit": "samples/s", "speedup": rate / base_rate if rate and base_rate else None,
                    "efficiency": share[0], "efficiency_lo": share[1], "efficiency_hi": share[2],
                    "base_world_size": base if based else None,
                    "samples_per_epoch": samples * here[0].duplication if samples and times else None,
                    "samples_unique": samples if times else None, "quantisation": 0.97,
                }
            )  # fmt: skip
    return rows


def _times(members: list[Run], size: int) -> list[float]:
    """Epoch times of the valid runs, the newest of each repeat."""
    newest = {run.repeat: run for run in sorted(members, key=lambda run: run.revision) if run.world_size == size}
    return sorted(run.epoch_time_s for run in newest.values() if run.valid and run.epoch_time_s is not None)


def store_file(path: Path, runs: Iterable[Run]) -> Path:
    """The same as a DuckDB file."""
    with duckdb.connect(str(path)) as connection:
        fill(connection, runs)
    return path


def memory_store(runs: Iterable[Run]) -> duckdb.DuckDBPyConnection:
    """The same in memory."""
    connection = duckdb.connect()
    fill(connection, runs)
    return connection


def ladder(
    sizes: Iterable[int],
    *,
    serial: float = 2.0,
    parallel: float = 100.0,
    repeats: int = 3,
    spread: float = 0.04,
    **more: Any,
) -> list[Run]:
    """Runs that follow T = serial + parallel / q, repeats a few per cent apart, with rows in every table."""
    sizes = list(sizes)
    runs = []
    for size in sizes:
        for repeat in range(repeats):
            seconds = (serial + parallel * sizes[0] / size) * (1 + spread * (repeat - (repeats - 1) / 2))
            runs.append(
                Run(
                    world_size=size, repeat=repeat, epoch_time_s=seconds, phases=phase_times(size, repeat),
                    step_parts=step_times(seconds / 16, size), **more,
                )
            )  # fmt: skip
    return runs


def phase_times(size: int, repeat: int = 0) -> dict[str, tuple[float, float, float]]:
    """Seconds since job_start (min, median, max over ranks), growing with the world size."""
    growth = 1 + 0.12 * size.bit_length() + 0.03 * repeat
    ends = (0.4, 1.1, 1.3, 1.9, 6.5, 7.2, 8.4, 9.0, 9.6)
    return {
        phase: (end * growth * 0.92, end * growth, end * growth * 1.15) for phase, end in zip(PHASES, ends, strict=True)
    }


def step_times(step: float, size: int) -> dict[str, float]:
    """Parts of a step in seconds; backward includes the exposed communication, as the Recorder measures it."""
    exposed = step * min(0.35, 0.03 * size.bit_length())
    return {
        "step_s": step, "data_wait_s": step * 0.08, "h2d_s": step * 0.02, "forward_s": step * 0.2,
        "backward_s": step * 0.4 + exposed * 0.5, "comm_exposed_s": exposed * 0.5, "optimizer_s": step * 0.05,
    }  # fmt: skip
