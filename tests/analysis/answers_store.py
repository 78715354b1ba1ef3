"""A small store with tables of the contract's view columns, filled from made-up runs.

The columns of `scaling` are worked out here by the contract's formulas, independently of the store's SQL, so that the
tests of figures and tables need no campaign to have run.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import duckdb

TABLES = {
    "runs": "run_id VARCHAR, site VARCHAR, study VARCHAR, series VARCHAR, plan_id VARCHAR, workload VARCHAR, "
    "strategy VARCHAR, scaling VARCHAR, params JSON, nodes INTEGER, ranks_per_node INTEGER, world_size INTEGER, "
    "local_batch INTEGER, global_batch INTEGER, repeat INTEGER, state VARCHAR, fail_class VARCHAR, valid BOOLEAN, "
    "why_invalid VARCHAR, attempts INTEGER, superseded_by VARCHAR, oversubscribed BOOLEAN, gpu_h DOUBLE, node_h DOUBLE",
    "jobs": "run_id VARCHAR, attempt INTEGER, ended TIMESTAMP, commit VARCHAR, dirty BOOLEAN",
    "epochs": "run_id VARCHAR, attempt INTEGER, epoch INTEGER, warmup BOOLEAN, epoch_time_s DOUBLE, steps INTEGER, "
    "samples_unique BIGINT, data_wait_s DOUBLE, comm_exposed_s DOUBLE",
    "windows": "run_id VARCHAR, attempt INTEGER, epoch INTEGER, \"window\" INTEGER, metric VARCHAR, unit VARCHAR, "
    "n INTEGER, min DOUBLE, median DOUBLE, max DOUBLE",
    "phases": "run_id VARCHAR, attempt INTEGER, phase VARCHAR, n INTEGER, min_s DOUBLE, median_s DOUBLE, "
    "max_s DOUBLE, p99_s DOUBLE, slowest_node VARCHAR",
    "startup": "run_id VARCHAR, attempt INTEGER, staging VARCHAR, redirect BOOLEAN",
    "scaling": "site VARCHAR, study VARCHAR, series VARCHAR, world_size INTEGER, strategy VARCHAR, scaling VARCHAR, "
    "nodes INTEGER, gpus INTEGER, n INTEGER, n_excluded INTEGER, epoch_time_s DOUBLE, epoch_time_lo_s DOUBLE, "
    "epoch_time_hi_s DOUBLE, spread_kind VARCHAR, throughput_per_s DOUBLE, throughput_lo DOUBLE, throughput_hi DOUBLE, "
    "throughput_unit VARCHAR, speedup DOUBLE, efficiency DOUBLE, efficiency_lo DOUBLE, efficiency_hi DOUBLE, "
    "base_world_size INTEGER, samples_per_epoch DOUBLE, quantisation DOUBLE",
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
    valid: bool = True
    why_invalid: str | None = None
    state: str = "done"
    gpus_per_rank: int = 1
    staging: str = "none"
    extra: str = ""
    """More of the series' text, such as `hidden=128`."""
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
        return ",".join(part for part in (f"strategy={self.strategy}" if self.strategy else "", self.extra) if part)

    @property
    def run_id(self) -> str:
        import hashlib

        identity = [self.site, self.study, self.series, self.world_size, self.repeat, self.valid]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]


def fill(connection: duckdb.DuckDBPyConnection, runs: Iterable[Run], commits: tuple[str, ...] = ("a1b2c3d4e5f60718",)) -> None:
    """Create the tables and put the runs in."""
    runs = list(runs)
    for table, columns in TABLES.items():
        connection.execute(f"CREATE TABLE {table} ({columns})")
    for index, run in enumerate(runs):
        nodes = max(1, run.world_size // 4)
        _insert(
            connection, "runs", run_id=run.run_id, site=run.site, study=run.study, series=run.series, plan_id="p1",
            workload="training.workloads.hydrology", strategy=run.strategy, scaling="strong",
            params=json.dumps({**run.params, "global_batch": 256}), nodes=nodes,
            ranks_per_node=min(4, run.world_size), world_size=run.world_size, global_batch=256,
            local_batch=max(1, 256 // run.world_size), repeat=run.repeat, state=run.state, valid=run.valid,
            why_invalid=run.why_invalid, attempts=1, oversubscribed=False,
        )  # fmt: skip
        _insert(
            connection, "jobs", run_id=run.run_id, attempt=1, ended=NEWEST - timedelta(hours=len(runs) - 1 - index),
            commit=commits[index % len(commits)] if commits else None, dirty=False,
        )  # fmt: skip
        _insert(connection, "startup", run_id=run.run_id, attempt=1, staging=run.staging, redirect=True)
        _measurements(connection, run)
    for row in scaling(runs):
        _insert(connection, "scaling", **row)


def _measurements(connection: duckdb.DuckDBPyConnection, run: Run) -> None:
    if run.epoch_time_s is not None:
        for epoch, factor in enumerate((3.0, 1.0, 1.0)):  # the warm-up epoch is slow, and must not count
            _insert(
                connection, "epochs", run_id=run.run_id, attempt=1, epoch=epoch, warmup=epoch == 0,
                epoch_time_s=run.epoch_time_s * factor, steps=run.steps, samples_unique=run.samples,
                **(run.epoch_parts or {}),
            )  # fmt: skip
    for metric, seconds in (run.step_parts or {}).items():
        for epoch, window, factor in ((0, 0, 9.0), (1, 0, 0.5), (1, 1, 1.5), (2, 0, 1.0)):
            _insert(
                connection, "windows", run_id=run.run_id, attempt=1, epoch=epoch, window=window, metric=metric,
                unit="s", n=run.world_size, min=seconds * factor * 0.9, median=seconds * factor,
                max=seconds * factor * 1.2,
            )  # fmt: skip
    for phase, (low, middle, high) in (run.phases or {}).items():
        _insert(
            connection, "phases", run_id=run.run_id, attempt=1, phase=phase, n=run.world_size, min_s=low,
            median_s=middle, max_s=high, p99_s=high, slowest_node="n1",
        )  # fmt: skip


def scaling(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Rows of `scaling` by contract section 2: medians of valid runs, lo/hi = min/max below n = 5."""
    series = defaultdict[tuple[str, str, str], list[Run]](list)
    for run in runs:
        series[run.site, run.study, run.series].append(run)
    rows = []
    for (site, study, name), members in sorted(series.items()):
        base = members[0].base or min(run.world_size for run in members)
        base_values = _throughputs(members, base) if members[0].has_base else []
        for size in sorted({run.world_size for run in members}):
            here = [run for run in members if run.world_size == size]
            times = sorted(run.epoch_time_s for run in here if run.valid and run.epoch_time_s is not None)
            rates = _throughputs(members, size)
            gain = [rate / median(base_values) for rate in rates] if base_values else []
            share = [value * base / size for value in gain]
            rows.append(
                {
                    "site": site, "study": study, "series": name, "world_size": size, "strategy": here[0].strategy,
                    "scaling": "strong", "nodes": max(1, size // 4), "gpus": size * here[0].gpus_per_rank,
                    "n": len(times), "n_excluded": sum(not run.valid for run in here),
                    "epoch_time_s": median(times) if times else None,
                    "epoch_time_lo_s": min(times, default=None), "epoch_time_hi_s": max(times, default=None),
                    "spread_kind": None if len(times) < 2 else "minmax" if len(times) < 5 else "bootstrap95",
                    "throughput_per_s": median(rates) if rates else None,
                    "throughput_lo": min(rates, default=None), "throughput_hi": max(rates, default=None),
                    "throughput_unit": "samples/s", "speedup": median(gain) if gain else None,
                    "efficiency": median(share) if share else None,
                    "efficiency_lo": min(share, default=None), "efficiency_hi": max(share, default=None),
                    "base_world_size": base if members[0].has_base else None, "samples_per_epoch": here[0].samples,
                    "quantisation": 0.97,
                }
            )  # fmt: skip
    return rows


def _throughputs(members: list[Run], size: int) -> list[float]:
    return [
        run.samples / run.epoch_time_s
        for run in members
        if run.world_size == size and run.valid and run.samples and run.epoch_time_s
    ]


def _insert(connection: duckdb.DuckDBPyConnection, table: str, **values: Any) -> None:
    columns = ", ".join(f'"{name}"' for name in values)
    marks = ", ".join("?" * len(values))
    connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", list(values.values()))


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
    sizes: Iterable[int], *, serial: float = 2.0, parallel: float = 100.0, repeats: int = 3, spread: float = 0.04, **more: Any
) -> list[Run]:
    """Runs along world sizes that follow T = serial + parallel / q, repeats a few per cent apart, with all views filled."""
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
