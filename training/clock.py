"""Where the time of a training step goes, measured without slowing it down.

On CPU the parts are differences of `perf_counter`. On a GPU the host runs ahead, so CUDA events mark the parts on the
device's own clock and are read `LATE` steps later, when they have long been reached: no synchronisation is added.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any, NamedTuple

import torch
from torch.nn.parallel import DistributedDataParallel

from campaign.record import Recorder
from training.distributed import World

LATE = 4
"""Steps between marking an event and reading it."""
PARTS = ("h2d_s", "forward_s", "backward_s", "optimizer_s")
COMM_EVERY = 10
"""DDP measures its communication in the first 10 steps and then every so many."""


class _Pending(NamedTuple):
    epoch: int
    step: int
    samples: int
    data_wait_s: float
    comm_exposed_s: float
    marks: list[Any]
    loss: torch.Tensor
    """On the host; on a GPU filled once `ready` has been reached."""
    ready: torch.cuda.Event | None


class StepClock:
    """Times the steps of one rank and hands them to the recorder.

    For each step: `begin()` before the batch is asked for, `batch_here()` when it is, `mark()` after each of PARTS,
    `end()` last. `drain()` after an epoch's last step.
    """

    def __init__(self, recorder: Recorder, world: World, model: DistributedDataParallel) -> None:
        self._recorder, self._world, self._model = recorder, world, model
        self._gpu = world.on_gpu
        self._pending: deque[_Pending] = deque()
        self._marks: list[Any] = []
        self._wait_from = self._wait_s = 0.0
        self._loss_sum, self._loss_count = 0.0, 0
        if world.size > 1:
            model._set_ddp_runtime_logging_sample_rate(COMM_EVERY)

    def begin(self) -> None:
        """The step begins: the next batch is asked for."""
        self._marks = [self._now()]
        self._wait_from = time.perf_counter()

    def batch_here(self) -> None:
        """The batch has arrived on the host."""
        self._marks.append(self._now())
        # the device's clock doesn't see the host wait
        self._wait_s = time.perf_counter() - self._wait_from if self._gpu else self._marks[1] - self._marks[0]

    def mark(self) -> None:
        """The next of PARTS is done."""
        self._marks.append(self._now())

    def end(self, epoch: int, step: int, samples: int, loss: torch.Tensor) -> None:
        """The step is done; `loss` is its global loss, on the device."""
        loss, ready = self._fetch(loss.detach())
        self._pending.append(
            _Pending(epoch, step, samples, self._wait_s, self._exposed(step), self._marks, loss, ready)
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
        marks, loss = pending.marks, float(pending.loss)
        parts = {name: self._between(marks[i + 1], marks[i + 2]) for i, name in enumerate(PARTS)}
        self._loss_sum, self._loss_count = self._loss_sum + loss, self._loss_count + 1
        self._recorder.step(
            pending.epoch,
            pending.step,
            samples=pending.samples,
            data_wait_s=pending.data_wait_s,
            comm_exposed_s=pending.comm_exposed_s,
            step_s=self._between(marks[0], marks[-1]),
            loss=loss,
            **parts,
        )

    def _exposed(self, step: int) -> float:
        """Communication of a backward pass that was not hidden by computing, s; NaN in steps without a sample.

        DDP tells of a sampled step when the next sampled one begins, so a sample is one step old in the first 10 steps
        and COMM_EVERY steps later on.
        """
        if self._world.size == 1:
            return 0.0
        if step == 0 or (step > COMM_EVERY and step % COMM_EVERY):
            return float("nan")  # asking costs 0.1 ms
        data = self._model._get_ddp_logging_data()
        exposed = int(data["backward_comm_time"]) - int(data["backward_compute_comm_overlap_time"])
        return max(exposed, 0) * 1e-9
