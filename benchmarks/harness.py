"""How a benchmark measures: pairs side by side, the median of their ratios, and a bound that is held or missed."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal


def row(
    name: str,
    values: Sequence[float],
    unit: str,
    *,
    bound: float,
    kind: Literal["max", "min"],
    detail: str = "",
) -> dict[str, Any]:
    """One line of the table. The median of `values` must be at most (`max`) or at least (`min`) `bound`."""
    value = statistics.median(values)
    return {
        "name": name,
        "value": value,
        "unit": unit,
        "bound": bound,
        "kind": kind,
        "ok": value <= bound if kind == "max" else value >= bound,
        "detail": detail,
        "n": len(values),
        "min": min(values),
        "median": value,
        "max": max(values),
    }


def paired_ratios(
    ours: Callable[[], float], theirs: Callable[[], float], *, pairs: int, warmup: int = 1
) -> tuple[list[float], list[float], list[float]]:
    """(ratios, ours, theirs) of interleaved measurements: a noisy neighbour hits both sides of a pair alike.

    Every other pair runs in the opposite order, so that neither side always comes second.
    """
    for _ in range(warmup):
        ours(), theirs()
    mine: list[float] = []
    peer: list[float] = []
    for number in range(pairs):
        order = (ours, theirs) if number % 2 == 0 else (theirs, ours)
        first, second = order[0](), order[1]()
        mine.append(first if number % 2 == 0 else second)
        peer.append(second if number % 2 == 0 else first)
    return [a / b for a, b in zip(mine, peer, strict=True)], mine, peer


def seconds(call: Callable[[], object]) -> float:
    """Wall seconds of one call."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def process_seconds(argv: Sequence[str | os.PathLike[str]], **options: Any) -> float:
    """Wall seconds from start to end of a process. Raises RuntimeError with its stderr when it fails."""
    # pyc files are used and kept, as they are for a user
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def call() -> None:
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, **options)
        if done.returncode != 0:
            raise RuntimeError(f"{[str(part) for part in argv]} exited with {done.returncode}:\n{done.stderr[-2000:]}")

    return seconds(call)


def milliseconds(values: Sequence[float]) -> str:
    """Median of seconds, for `detail`."""
    return f"{statistics.median(values) * 1e3:.0f} ms"
