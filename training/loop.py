"""The measured training loop: steps, epochs, validation.

**Loss.** The root of the mean squared error over the *global* batch. DDP averages gradients over ranks, and the mean
of the ranks' roots is not the root of the mean, so each rank differentiates its share of the global mean squared
error, one number is all-reduced beside the backward pass, and the averaged gradient is scaled by
d sqrt(m) / dm = 1 / (2 sqrt(m)). Losses and updates are thus the same at every world size with the same global batch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn

from campaign.errors import CampaignError, Problem
from campaign.record import Recorder
from training import distributed
from training.clock import StepClock
from training.distributed import World
from training.model import LSTMSurrogate
from training.precision import forward_precision
from training.samples import Batch, Part, Samples
from training.settings import Settings
from training.sharding import Shard, audit
from training.strategies import ddp

EVALUATION_BATCH = 4096


@dataclass(frozen=True, slots=True)
class EpochResult:
    """One epoch of this rank; losses and counts are over all ranks."""

    epoch: int
    epoch_time_s: float
    steps: int
    loss: float
    """Mean of the steps' losses, normalised units."""
    val_loss: float | None
    """RMSE over the validation samples, in the target's units."""
    samples_seen: int
    samples_unique: int
    order_hash: str


@dataclass(slots=True)
class Trained:
    """What `train` gives back."""

    model: nn.Module
    epochs: list[EpochResult] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    """Global loss of each step, when asked for."""


def train(
    settings: Settings,
    parts: dict[Part, Samples],
    world: World,
    recorder: Recorder,
    *,
    report: Callable[[EpochResult], None] = lambda result: None,
    keep_losses: bool = False,
) -> Trained:
    """Train on this rank's share of `parts["train"]`; a collective call.

    `report` is told of each epoch, outside of what is timed.
    """
    local_batch, _ = settings.batches(world.size)
    samples = parts["train"].fraction(settings.fraction, settings.seed)
    validation = parts["validation"].fraction(settings.fraction, settings.seed) if settings.validate else None
    shard = Shard(
        samples,
        world,
        local_batch,
        seed=settings.seed,
        sharded=settings.sharded,
        num_workers=settings.num_workers,
    )
    torch.manual_seed(settings.seed)
    first = samples[0]
    model = LSTMSurrogate(
        first.window.shape[-1],
        first.static.shape[-1],
        hidden=settings.hidden,
        layers=settings.layers,
        dropout=settings.dropout,
    )
    if settings.precision == "fp64":
        model = model.double()
    stepper = _Stepper(settings, ddp(model, world), world, recorder, shard)
    # the same initial weights on every rank, but not the same dropped units
    torch.manual_seed(settings.seed * 1_000_003 + world.rank)
    trained = Trained(model)
    for epoch in range(settings.epochs):
        result = _epoch(stepper, epoch, validation, keep_losses=keep_losses, losses=trained.losses)
        trained.epochs.append(result)
        recorder.epoch(
            epoch,
            epoch_time_s=result.epoch_time_s,
            steps=result.steps,
            samples_seen=stepper.samples_seen,
            warmup=epoch < settings.warmup_epochs,
            samples_unique=result.samples_unique,
            order_hash=result.order_hash,
            loss=result.loss,
            val_loss=result.val_loss,
        )
        report(result)
    return trained


def _epoch(
    stepper: _Stepper, epoch: int, validation: Samples | None, *, keep_losses: bool, losses: list[float]
) -> EpochResult:
    settings, shard = stepper.settings, stepper.shard
    shard.set_epoch(epoch)
    read: list[torch.Tensor] = []
    stepper.model.train()
    dist.barrier()  # an epoch's time must not hold the wait for ranks that come late out of the epoch before
    started = time.perf_counter()
    batches = iter(shard.loader)
    stepper.clock.begin()
    for step, batch in enumerate(batches):
        stepper.clock.batch_here()
        if stepper.steps_done == 0:
            stepper.recorder.phase("first_batch")
        loss = stepper.step(epoch, step, batch)
        read.append(batch.index)
        if keep_losses:
            losses.append(float(loss))
        stepper.clock.begin()
    mean_loss = stepper.clock.drain()
    epoch_time_s = time.perf_counter() - started
    if not math.isfinite(mean_loss):
        raise CampaignError(
            Problem(
                f"the loss of epoch {epoch} is not finite: {mean_loss}", key="lr", value=settings.lr, hint="lower lr"
            )
        )
    index = torch.cat(read)
    stepper.samples_seen = len(index)
    found = audit(index, len(shard.samples), stepper.world)
    return EpochResult(
        epoch,
        epoch_time_s,
        len(read),
        mean_loss,
        None if validation is None else evaluate(stepper.model.module, validation, stepper.world, stepper.autocast),
        found.seen,
        found.unique,
        found.order_hash,
    )


class _Stepper:
    """One optimizer step, with everything that it needs over and over."""

    def __init__(
        self,
        settings: Settings,
        model: nn.parallel.DistributedDataParallel,
        world: World,
        recorder: Recorder,
        shard: Shard,
    ) -> None:
        self.settings, self.model, self.world, self.recorder, self.shard = settings, model, world, recorder, shard
        self.parameters = list(model.parameters())
        if settings.optimizer == "adam":
            self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(
                self.parameters, lr=settings.lr, weight_decay=settings.weight_decay
            )
        else:
            self.optimizer = torch.optim.SGD(self.parameters, lr=settings.lr, weight_decay=settings.weight_decay)
        steps = settings.epochs * len(shard)
        cosine = settings.lr_schedule == "cosine"
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / steps)) if cosine else 1.0
        )
        self.clock = StepClock(recorder, world, model)
        self.dtype = torch.float64 if settings.precision == "fp64" else torch.float32
        self.steps_done = 0
        self.samples_seen = 0

    def autocast(self) -> AbstractContextManager[object]:
        """The precision of forward passes."""
        return forward_precision(self.settings.precision, self.world.device)

    def step(self, epoch: int, step: int, batch: Batch) -> torch.Tensor:
        """One step; returns the global loss (on the device)."""
        clock, world, local = self.clock, self.world, len(batch.index)
        window, static, target = (
            tensor.to(world.device, self.dtype, non_blocking=True)
            for tensor in (batch.window, batch.static, batch.target)
        )
        clock.mark()
        counted, total = self.shard.counted(step, local), self.shard.global_samples(step)
        with self.autocast():
            predicted = self.model(window, static)
        squares = torch.nn.functional.mse_loss(predicted[:counted].to(self.dtype), target[:counted], reduction="sum")
        share = squares * (world.size / total)  # DDP's mean over ranks of the shares is the global mean squared error
        global_mse = share.detach() / world.size
        summing = dist.all_reduce(global_mse, async_op=True)
        clock.mark()
        share.backward()
        summing.wait()
        clock.mark()
        loss = global_mse.sqrt()
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        # gradient of the root, then clipped: one factor for both
        scale = 1.0 / (2.0 * loss.clamp(min=1e-12))
        scale = scale * (self.settings.grad_clip / (norm * scale + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(gradients, scale)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.schedule.step()
        clock.mark()
        clock.end(epoch, self.steps_done, local, loss)
        if self.steps_done == 0:
            float(loss)  # on a GPU: wait until the first step is really done
            self.recorder.phase("first_step")
            distributed.set_timeout(self.settings.train_timeout_s)
        self.steps_done += 1
        return loss


def evaluate(
    model: nn.Module,
    samples: Samples,
    world: World,
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> float:
    """RMSE over `samples` in the target's units, the work shared by all ranks; a collective call."""
    errors = predict(model, samples, world, torch.arange(world.rank, len(samples), world.size), autocast)
    total = (errors.double() ** 2).sum().reshape(1).to(world.device)
    dist.all_reduce(total)
    return math.sqrt(float(total) / len(samples))


def predict(
    model: nn.Module,
    samples: Samples,
    world: World,
    index: torch.Tensor,
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> torch.Tensor:
    """Predicted minus true target of the samples `index`, in the target's units, on the CPU."""
    model.eval()
    dtype = next(model.parameters()).dtype
    errors = []
    with torch.inference_mode(), autocast():
        for part in index.split(EVALUATION_BATCH):
            batch = samples.__getitems__(part)
            predicted = model(batch.window.to(world.device, dtype), batch.static.to(world.device, dtype))
            errors.append((predicted.float().cpu() - batch.target) * samples.scales.target_std)
    return torch.cat(errors) if errors else torch.zeros(0)
