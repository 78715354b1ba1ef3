"""Adds up how long computing stood still inside of chosen calls: on the host's clock, or on the GPU's stream."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

from training.distributed import World
from training.strategies.base import Exposed

Called = TypeVar("Called", bound=Callable[..., Any])


class Waits:
    """Times of the calls that it was put around, from one `take` to the next."""

    def __init__(self, world: World, *, host: bool = False) -> None:
        """host: the host waits, on a GPU too."""
        self._alone = world.size == 1  # nobody is waited for, and nobody takes what would add up
        self._on_gpu = world.on_gpu and not host
        self._seconds = 0.0
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def around(self, function: Called) -> Called:
        """`function`, timed. On a GPU: events on the current stream, which a wait for another stream holds up."""
        if self._alone:
            return function

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._on_gpu:
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                result = function(*args, **kwargs)
                end.record()
                self._events.append((begin, end))
                return result
            started = time.perf_counter()
            result = function(*args, **kwargs)
            self._seconds += time.perf_counter() - started
            return result

        return cast(Called, timed)

    def take(self) -> Exposed:
        """The sum since the last call, and begin anew. Events are read when the result is called."""
        seconds, events = self._seconds, self._events
        self._seconds, self._events = 0.0, []
        return lambda: seconds + sum(begin.elapsed_time(end) for begin, end in events) * 1e-3
