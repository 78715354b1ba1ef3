"""Waiting for conditions, never for time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 120.0
"""Default deadline: far above what a healthy machine needs, so that a loaded one passes too."""


def wait_for(
    condition: Callable[[], T],
    deadline: float = PATIENCE_S,
    *,
    what: str | Callable[[], str] = "",
    interval: float = 0.05,
) -> T:
    """Call `condition` until its answer is true, and return that answer.

    `deadline`: seconds from now; then TimeoutError, which names `what` (text, or a function asked only then) and the
    condition's last answer. `interval`: seconds between calls.
    """
    end = time.monotonic() + deadline
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > end:
            text = what() if callable(what) else what
            name = getattr(condition, "__name__", "condition")
            raise TimeoutError(f"after {deadline:g} s: {text or name} (last answer: {answer!r})")
        time.sleep(interval)
