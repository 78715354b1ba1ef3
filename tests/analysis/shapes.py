"""Shapes of results that a figure must survive."""

from __future__ import annotations

from collections.abc import Callable

from tests.analysis.answers_store import Run, ladder, phase_times, step_times

STRATEGIES = ("ddp", "fsdp2", "zero0", "zero1", "zero2", "zero3", "horovod")
LONG_SITES = ("a_partition_with_quite_a_long_name_indeed", "another_supercomputer_with_a_long_name", "jupiter")


def invalid(world_size: int, seconds: float, **more: object) -> Run:
    """A run that measured, but isn't valid."""
    return Run(
        world_size=world_size, epoch_time_s=seconds, valid=False, why_invalid="oversubscribed: more ranks than cores",
        repeat=9, phases=phase_times(world_size), step_parts=step_times(seconds / 16, world_size), **more,  # type: ignore[arg-type]
    )  # fmt: skip


def two_sites() -> list[Run]:
    """JUWELS to 32 ranks with an invalid run, Vega slower and to 16."""
    return [
        *ladder([4, 8, 16, 32]),
        invalid(32, 9.9),
        *ladder([4, 8, 16], site="vega", serial=4, parallel=120, spread=0.15),
    ]


def many_strategies(sites: tuple[str, ...] = ("juwels",)) -> list[Run]:
    return [
        run
        for site in sites
        for index, name in enumerate(STRATEGIES)
        for run in ladder([4, 8, 16, 32], strategy=name, site=site, serial=1 + index, parallel=100 + 3 * index)
    ]


SHAPES: dict[str, Callable[[], list[Run]]] = {
    "one point, one run, no GPU": lambda: ladder([2], repeats=1, gpus_per_rank=0),
    "two points": lambda: ladder([1, 2], repeats=2),
    "no repeats": lambda: ladder([1, 2, 4, 8], repeats=1),
    "nine world sizes to 16384, n = 5": lambda: ladder(
        [1, 4, 16, 64, 256, 1024, 4096, 8192, 16384], repeats=5, serial=0.5, parallel=1000
    ),
    "crowded world sizes": lambda: ladder([1, 2, 3, 4, 5, 6, 7, 8, 100, 101, 102, 16383, 16384], repeats=1),
    "two sites": two_sites,
    "three sites with long names": lambda: [
        run for i, site in enumerate(LONG_SITES) for run in ladder([4, 8, 16, 32], site=site, serial=2.0 + i)
    ],
    "seven strategies": many_strategies,
    "seven strategies on two sites": lambda: many_strategies(("juwels", "vega")),
    "three studies on two sites": lambda: [
        run
        for study in ("strong_scaling", "weak_scaling", "cern_hython")
        for site in ("juwels", "vega")
        for run in ladder([4, 8, 16], study=study, site=site)
    ],
    "missing baseline": lambda: ladder([4, 8, 16], has_base=False),
    "baseline not valid": lambda: [invalid(4, 25.0), *ladder([8, 16], has_base=False)],
    "all invalid on two sites": lambda: [
        invalid(size, 40 / size, site=site) for site in ("juwels", "vega") for size in (2, 4, 8)
    ],
    "huge values": lambda: ladder([1, 2, 4], serial=3e9, parallel=9e11, samples=2**50),
    "tiny values": lambda: ladder([1, 2, 4], serial=3e-9, parallel=9e-8, samples=1),
    "hardly any difference": lambda: ladder([1, 2, 4], serial=100, parallel=1e-6),
    "superlinear": lambda: [Run(world_size=size, epoch_time_s=100 / size**3) for size in (1, 2, 4)],
    "no samples counted": lambda: ladder([1, 2, 4], samples=None),
    "not sharded": lambda: ladder([1, 2, 4], serial=50, parallel=0.01, duplication=4),
    "hostile names": lambda: [
        run
        for extra in ("x=$(touch x)$ #a1b2c3", "x=a\nb #a1b2c3", "_y=\u6f22\u5b57 #a1b2c3", "x=" + "long" * 40)
        for run in ladder([1, 2], extra=extra)
    ],
    "epoch sums only": lambda: [
        Run(world_size=size, epoch_time_s=32 / size, epoch_parts={"data_wait_s": 4.0, "comm_exposed_s": 2.0})
        for size in (1, 2, 4)
    ],
    "whole steps only": lambda: [
        Run(world_size=size, repeat=repeat, step_parts={"step_s": 0.5 / size})
        for size in (1, 2, 4)
        for repeat in (0, 1)
    ],
    "staged and not": lambda: [*ladder([4, 16]), *ladder([4, 16], staging="staged-image")],
}
