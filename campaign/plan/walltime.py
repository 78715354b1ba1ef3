"""`walltime: auto`: from measured runs of a series to the walltime of its other points. Pure.

A run takes its start-up and its work. Work is modelled as a + b/ranks with a, b >= 0, fitted by least squares over the
pilots' sizes (one size: Amdahl's law with a serial part of `SERIAL`). Start-up is the slowest pilot's, and grows by
`STARTUP_GROWTH` with every doubling of the nodes. The sum gets a margin, and is rounded up to whole `STEP_S`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

WAITS = "walltime: auto waits for a pilot: nothing of this series has been measured yet"
"""What is said of a run that can be planned only after another one."""
SERIAL = 0.1
"""Part of the work that is assumed not to shrink when only one size was measured."""
STARTUP_GROWTH = 0.25
MARGIN = 1.5
MARGIN_S = 120.0
STEP_S = 300
PILOT_S = 1800
"""Walltime of a pilot where the partition has no `default_time`."""


@dataclass(frozen=True, slots=True)
class Pilot:
    """One measured run."""

    run_id: str
    nodes: int
    world_size: int
    startup_s: float
    """Until the first step; 0 where it wasn't recorded."""
    work_s: float
    """All the rest."""


Pilots = Callable[[str, str], Sequence[Pilot]]
"""(site, series) -> measured runs."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A walltime and how it came about."""

    walltime_s: int
    startup_s: float
    work_s: float
    text: str


def estimate(pilots: Sequence[Pilot], *, nodes: int, world_size: int, scales: bool) -> Estimate:
    """The walltime of a run with `world_size` ranks on `nodes` nodes. `pilots`: at least one.

    `scales`: the work is shared by the ranks (strong scaling, and weak scaling over one data set); else it stays.
    """
    slowest = max(pilots, key=lambda pilot: pilot.startup_s)
    doublings = max(0.0, math.log2(nodes / slowest.nodes))
    startup_s = slowest.startup_s * (1 + STARTUP_GROWTH * doublings)
    work_s, model = _work(pilots, world_size) if scales else (max(pilot.work_s for pilot in pilots), "work as measured")
    walltime_s = math.ceil((MARGIN * (startup_s + work_s) + MARGIN_S) / STEP_S) * STEP_S
    text = (
        f"{len(pilots)} pilot{'s' if len(pilots) > 1 else ''}: start-up {startup_s:.0f} s + work {work_s:.0f} s "
        f"({model}), x {MARGIN:g} + {MARGIN_S:.0f} s"
    )
    return Estimate(walltime_s, startup_s, work_s, text)


def _work(pilots: Sequence[Pilot], world_size: int) -> tuple[float, str]:
    """Seconds of work at this size, never less than what was measured at this very size; the model in words."""
    sizes: dict[int, list[float]] = {}
    for pilot in pilots:
        sizes.setdefault(pilot.world_size, []).append(pilot.work_s)
    times = {size: statistics.median(values) for size, values in sizes.items()}
    if len(times) == 1:
        ((size, measured),) = times.items()
        share = SERIAL + (1 - SERIAL) * size / world_size if world_size > size else size / world_size
        modelled, model = measured * share, f"{measured:.0f} s at {size} ranks, {SERIAL:.0%} serial"
    else:
        constant, divided = fit(times)
        modelled, model = constant + divided / world_size, f"{constant:.0f} s + {divided:.0f} s / ranks"
    return max(modelled, *sizes.get(world_size, [0.0])), model


def fit(times: dict[int, float]) -> tuple[float, float]:
    """(a, b) of a + b/ranks by least squares with a, b >= 0; at least two sizes."""
    x = [1 / size for size in times]
    y = list(times.values())
    mean_x, mean_y = statistics.fmean(x), statistics.fmean(y)
    spread = sum((value - mean_x) ** 2 for value in x)
    slope = sum((u - mean_x) * (v - mean_y) for u, v in zip(x, y, strict=True)) / spread
    if slope < 0:  # more ranks took longer: no part of the work is shared
        return mean_y, 0.0
    constant = mean_y - slope * mean_x
    if constant < 0:
        return 0.0, sum(u * v for u, v in zip(x, y, strict=True)) / sum(u * u for u in x)
    return constant, slope
