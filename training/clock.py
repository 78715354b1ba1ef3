"""Where the time of a training step goes, measured without slowing it down.

On CPU the parts are differences of `perf_counter`. On a GPU the host runs ahead, so CUDA events mark the parts on the
device's own clock and are read `LATE` steps later, when they have long been reached: no synchronisation is added.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Literal, NamedTuple

import torch

from campaign.record import Recorder
from training.distributed import World
from training.strategies import Exposed

LATE = 4
"""Steps between marking an event and reading it."""
Part = Literal["h2d_s", "forward_s", "backward_s", "optimizer_s"]
NAN = float("nan")
"""Not measured."""


class _Pending(NamedTuple):
    epoch: int
    step: int
    samples: int
    data_wait_s: float
    exposed: Exposed | None
    begin: Any
    batch_here: Any
    marks: list[tuple[Part, Any]]
    loss: torch.Tensor
    """On the host; on a GPU filled once `ready` has been reached."""
    ready: torch.cuda.Event | None


class StepClock:
    """Times the steps of one rank and hands them to the recorder.

    For each step: `begin()` before the batch is asked for, `batch_here()` when it is, `mark(part)` at the end of each
    part (micro-batches go through some of them several times), `end()` last. `drain()` after an epoch's last step.
    """

    def __init__(self, recorder: Recorder, world: World) -> None:
        self._recorder = recorder
        self._gpu = world.on_gpu
        self._pending: deque[_Pending] = deque()
        self._begin = self._here = None
        self._marks: list[tuple[Part, Any]] = []
        self._wait_from = self._wait_s = 0.0
        self._loss_sum, self._loss_count = 0.0, 0

    def begin(self) -> None:
        """The step begins: the next batch is asked for."""
        self._begin, self._marks = self._now(), []
        self._wait_from = time.perf_counter()

    def batch_here(self) -> None:
        """The batch has arrived on the host."""
        self._here = self._now()
        # the device's clock doesn't see the host wait
        self._wait_s = time.perf_counter() - self._wait_from if self._gpu else self._here - self._begin

    def mark(self, part: Part) -> None:
        """`part` is done: it gets the time since the last mark."""
        self._marks.append((part, self._now()))

    def end(self, epoch: int, step: int, samples: int, loss: torch.Tensor, exposed: Exposed | None) -> None:
        """The step is done; `loss` is its global loss, on the device; `exposed` as `Strategy.exposed` gave it."""
        loss, ready = self._fetch(loss.detach())
        self._pending.append(
            _Pending(epoch, step, samples, self._wait_s, exposed, self._begin, self._here, self._marks, loss, ready)
        )
        if not self._gpu or len(self._pending) > LATE:
            self._emit(self._pending.popleft())

    def drain(self) -> float:
        """Read what is left (waits for the device); the mean loss of the steps since the last call."""
        while self._pending:
            self._emit(self._pending.popleft())
        mean = self._loss_sum / max(self._loss_count, 1)
        self._loss_sum, self._loss_count = 0.0, 0
        return mean

    def _now(self) -> Any:
        if not self._gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _fetch(self, loss: torch.Tensor) -> tuple[torch.Tensor, torch.cuda.Event | None]:
        """The loss on its way to the host. `item()` would wait for all that the device has been given meanwhile."""
        if not self._gpu:
            return loss, None
        host = torch.empty(loss.shape, dtype=loss.dtype, pin_memory=True)
        host.copy_(loss, non_blocking=True)
        ready = torch.cuda.Event()
        ready.record()
        return host, ready

    def _between(self, first: Any, second: Any) -> float:
        return first.elapsed_time(second) * 1e-3 if self._gpu else second - first

    def _emit(self, pending: _Pending) -> None:
        if pending.ready is not None:
            pending.ready.synchronize()
        parts: dict[Part, float] = {"h2d_s": 0.0, "forward_s": 0.0, "backward_s": 0.0, "optimizer_s": 0.0}
        last = pending.batch_here
        for part, mark in pending.marks:
            parts[part] += self._between(last, mark)
            last = mark
        loss = float(pending.loss)
        self._loss_sum, self._loss_count = self._loss_sum + loss, self._loss_count + 1
        self._recorder.step(
            pending.epoch,
            pending.step,
            samples=pending.samples,
            data_wait_s=pending.data_wait_s,
            comm_exposed_s=NAN if pending.exposed is None else pending.exposed(),
            step_s=self._between(pending.begin, last),
            loss=loss,
            **parts,
        )
