"""One optimizer step.

**Loss.** The root of the mean squared error over the *global* batch. Strategies average gradients over ranks, and the
mean of the ranks' roots is not the root of the mean, so each rank differentiates its share of the global mean squared
error, one number is all-reduced beside the backward pass, and the averaged gradient is scaled by
d sqrt(m) / dm = 1 / (2 sqrt(m)). Losses and updates are thus the same at every world size, and however a rank's batch
is cut into micro-batches, with the same global batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from campaign.record import Recorder
from training import distributed
from training.clock import StepClock
from training.distributed import World
from training.precision import LossScale, forward_precision
from training.samples import Batch
from training.settings import Settings
from training.sharding import Shard
from training.strategies import Strategy


def make_optimizer(settings: Settings, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """PyTorch's optimizer of this run."""
    kind = torch.optim.AdamW if settings.optimizer == "adam" else torch.optim.SGD
    return kind(parameters, lr=settings.lr, weight_decay=settings.weight_decay)


class Stepper:
    """One optimizer step, with everything that it needs over and over."""

    def __init__(
        self, settings: Settings, strategy: Strategy, world: World, recorder: Recorder, shard: Shard, micro_batch: int
    ) -> None:
        self.settings, self.strategy, self.world = settings, strategy, world
        self.recorder, self.shard, self.micro_batch = recorder, shard, micro_batch
        steps = settings.epochs * len(shard)
        cosine = settings.lr_schedule == "cosine"
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            strategy.optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / steps)) if cosine else 1.0
        )
        self.clock = StepClock(recorder, world)
        self.loss_scale = LossScale(settings.loss_scale if settings.precision == "fp16" else None)
        self.dtype = torch.float64 if settings.precision == "fp64" else torch.float32
        self.steps_done = 0
        self.samples_seen = 0

    def autocast(self) -> AbstractContextManager[object]:
        """The precision of forward passes."""
        return forward_precision(self.settings.precision, self.world.device)

    def step(self, epoch: int, step: int, batch: Batch) -> torch.Tensor:
        """One step; returns the global loss (on the device)."""
        clock, strategy, scale = self.clock, self.strategy, self.loss_scale
        loss = self._gradients(step, batch)
        applied = strategy.step(1.0 / (2.0 * scale.value * loss.clamp(min=1e-12)), self.settings.grad_clip,
                                check=scale.on)  # fmt: skip
        scale.stepped(applied=applied)
        if applied:
            self.schedule.step()
        clock.mark("optimizer_s")
        clock.end(epoch, self.steps_done, len(batch.index), loss, strategy.exposed(self.steps_done))
        if self.steps_done == 0:
            float(loss)  # on a GPU: wait until the first step is really done
            self.recorder.phase("first_step")
            distributed.set_timeout(self.settings.train_timeout_s)
        self.steps_done += 1
        return loss

    def _gradients(self, step: int, batch: Batch) -> torch.Tensor:
        """Forward and backward passes of all micro-batches; the global loss []. Gradients are those of its square."""
        clock, strategy, local = self.clock, self.strategy, len(batch.index)
        window, static, target = (
            tensor.to(self.world.device, self.dtype, non_blocking=True)
            for tensor in (batch.window, batch.static, batch.target)
        )
        clock.mark("h2d_s")
        counted, total = self.shard.counted(step, local), self.shard.global_samples(step)
        mean_square = torch.zeros((), dtype=self.dtype, device=self.world.device)
        for begin in range(0, local, self.micro_batch):
            part = slice(begin, begin + self.micro_batch)
            known = max(0, min(counted - begin, self.micro_batch))  # what is left is padding
            last = part.stop >= local
            with nullcontext() if last else strategy.no_sync():
                with self.autocast():
                    predicted = strategy.model(window[part], static[part])
                squares = nn.functional.mse_loss(
                    predicted[:known].to(self.dtype), target[part][:known], reduction="sum"
                )
                mean_square += squares.detach() / total
                if last:
                    wait = strategy.sum_async(mean_square)
                clock.mark("forward_s")
                # the mean over ranks of these is the gradient of the global mean squared error
                strategy.backward(squares * (self.loss_scale.value * strategy.dp_size / total))
            if last:
                wait()
            clock.mark("backward_s")
        return mean_square.sqrt()
