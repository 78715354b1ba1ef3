"""The measured training loop: steps, epochs, validation.

One step is in `training.stepper`, what ranks do together in `training.strategies`.
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
from training.distributed import World, own_cores
from training.model import LSTMSurrogate
from training.samples import Part, Samples
from training.settings import Settings
from training.sharding import Shard, audit, auto_workers
from training.stepper import Stepper, make_optimizer
from training.strategies import Request, prepare

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
    validation = parts["validation"].fraction(settings.fraction, settings.seed) if settings.validate else None
    stepper = make_stepper(settings, parts, world, recorder)
    trained = Trained(stepper.strategy.plain)
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
    stepper.strategy.close()
    return trained


def make_stepper(settings: Settings, parts: dict[Part, Samples], world: World, recorder: Recorder) -> Stepper:
    """All that a step needs: model, strategy, this rank's share of the data; a collective call."""
    local_batch, _ = settings.batches(world.size)
    micro_batch = settings.micro_batch(local_batch)
    samples = parts["train"].fraction(settings.fraction, settings.seed)
    request = Request(
        lambda parameters: make_optimizer(settings, parameters), micro_batch, settings.micro_batches, settings.grad_clip
    )
    strategy = prepare(settings.strategy, _model(settings, samples), world, request)
    shard = Shard(
        samples,
        world,
        local_batch,
        seed=settings.seed,
        sharded=settings.sharded,
        num_workers=auto_workers(own_cores()) if settings.num_workers == "auto" else settings.num_workers,
    )
    # the same initial weights on every rank, but not the same dropped units
    torch.manual_seed(settings.seed * 1_000_003 + world.rank)
    return Stepper(settings, strategy, world, recorder, shard, micro_batch)


def _model(settings: Settings, samples: Samples) -> nn.Module:
    """The model with the initial weights of `seed`, the same on every rank."""
    torch.manual_seed(settings.seed)
    first = samples[0]
    model = LSTMSurrogate(
        first.window.shape[-1],
        first.static.shape[-1],
        hidden=settings.hidden,
        layers=settings.layers,
        dropout=settings.dropout,
    )
    return model.double() if settings.precision == "fp64" else model


def _epoch(
    stepper: Stepper, epoch: int, validation: Samples | None, *, keep_losses: bool, losses: list[float]
) -> EpochResult:
    settings, shard = stepper.settings, stepper.shard
    shard.set_epoch(epoch)
    read: list[torch.Tensor] = []
    stepper.strategy.model.train()
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
        None if validation is None else evaluate(stepper.strategy.plain, validation, stepper.world, stepper.autocast),
        found.seen,
        found.unique,
        found.order_hash,
    )


def evaluate(
    model: nn.Module,
    samples: Samples,
    world: World,
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> float:
    """RMSE over `samples` in the target's units, the work shared by all ranks; a collective call.

    Every rank makes the same number of forward passes, in which some strategies gather parameters: where the work
    can't be divided, a rank's last sample is predicted once more and left out of the sum.
    """
    share = torch.arange(world.rank, world.size * math.ceil(len(samples) / world.size), world.size)
    errors = predict(model, samples, world, share.clamp(max=len(samples) - 1), autocast)
    total = (errors[share < len(samples)].double() ** 2).sum().reshape(1).to(world.device)
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
    # parameters that are gathered in inference mode could not be trained afterwards
    with torch.no_grad(), autocast():
        for part in index.split(EVALUATION_BATCH):
            batch = samples.__getitems__(part)
            predicted = model(batch.window.to(world.device, dtype), batch.static.to(world.device, dtype))
            errors.append((predicted.float().cpu() - batch.target) * samples.scales.target_std)
    return torch.cat(errors) if errors else torch.zeros(0)
