"""Rows of the store's views as typed values. Times in seconds; NULL becomes None and means "not measured"."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class ScalingRow:
    """One point of the view `scaling`: valid runs of one world size of one series on one site."""

    site: str
    study: str
    series: str
    world_size: int
    strategy: str | None
    scaling: str | None
    nodes: int | None
    gpus: int | None
    n: int
    n_excluded: int
    epoch_time_s: float | None
    epoch_time_lo_s: float | None
    epoch_time_hi_s: float | None
    spread_kind: str | None
    throughput_per_s: float | None
    throughput_lo: float | None
    throughput_hi: float | None
    throughput_unit: str | None
    speedup: float | None
    efficiency: float | None
    efficiency_lo: float | None
    efficiency_hi: float | None
    base_world_size: int | None
    samples_per_epoch: int | None
    """Samples that all ranks read in an epoch, duplicates counted."""
    samples_unique: int | None
    quantisation: float | None


@dataclass(frozen=True, slots=True)
class RunPoint:
    """One ended run with what it measured: median over its non-warm-up epochs, last attempt."""

    run_id: str
    site: str
    study: str
    series: str
    """As in `scaling`, which adds the batch or the placement where one series of `runs` holds several."""
    strategy: str | None
    world_size: int
    repeat: int
    valid: bool
    why_invalid: str | None
    workload: str | None
    params: dict[str, Any]
    global_batch: int | None
    local_batch: int | None
    epoch_time_s: float | None
    throughput_per_s: float | None


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """One phase of one run: seconds since job_start over its ranks (or nodes), last attempt."""

    run_id: str
    site: str
    study: str
    strategy: str | None
    world_size: int
    nodes: int
    staging: str | None
    valid: bool
    phase: str
    n: int
    min_s: float
    median_s: float
    max_s: float


@dataclass(frozen=True, slots=True)
class StepRow:
    """One part of one run's step: seconds per step, mean over windows of the median over ranks, no warm-up epochs."""

    run_id: str
    site: str
    study: str
    series: str
    strategy: str | None
    world_size: int
    valid: bool
    part: str
    seconds: float
    source: str
    """`windows`; `all windows` when the run has no epochs that would tell the warm-up; `epochs` when it recorded no
    windows (then: slowest rank's sum over steps)."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the numbers of a figure come from."""

    runs: int
    """Valid runs among those chosen."""
    excluded: int
    """Ended runs that are not valid."""
    sites: tuple[str, ...]
    studies: tuple[str, ...]
    commits: tuple[str, ...]
    dirty: bool
    newest: datetime | None
    """End of the newest job, UTC."""
