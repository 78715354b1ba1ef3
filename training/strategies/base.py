"""What every strategy offers the training loop, and what several of them share.

One optimizer step of any strategy:

    for all micro-batches but the last:
        with strategy.no_sync():
            strategy.backward(loss of strategy.model(...))
    strategy.backward(loss of strategy.model(...))       gradients become means over the ranks
    strategy.step(factor, max_norm)                      gradients x factor, clipped; the optimizer; gradients cleared

The factor comes after the reduction, because it needs the loss of the whole global batch (see `training.loop`).
"""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from campaign.errors import BadInput, Problem

MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
Count = Callable[[str, int], None]
Exposed = Callable[[], float]
"""Seconds of one step; asked for once the device has reached the step's end."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a strategy is made for."""

    make_optimizer: MakeOptimizer
    micro_batch: int
    """Samples of a rank in one forward pass."""
    micro_batches: int
    """Forward passes of an optimizer step."""
    max_norm: float


class Strategy(ABC):
    """A model that many ranks train together. What most have in common is here; each says what it does otherwise."""

    name: str
    dp_size: int
    """Ranks that read different samples: what a sampler divides the data by."""
    model: nn.Module
    """For training's forward passes."""
    plain: nn.Module
    """For evaluation, where each rank makes as many forward passes as every other."""
    optimizer: torch.optim.Optimizer
    """PyTorch's own, whose learning rate a schedule may set."""

    def no_sync(self) -> AbstractContextManager[object]:
        """Around forward and backward of a micro-batch that isn't a step's last: gradients add up where they are.

        zero2, zero3 reduce in every backward all the same: they keep no whole gradients.
        """
        return nullcontext()

    def backward(self, loss: torch.Tensor) -> None:
        """Gradients of `loss` []; outside of `no_sync` they become means over all ranks."""
        loss.backward()

    @abstractmethod
    def step(self, factor: torch.Tensor, max_norm: float, *, check: bool = False) -> bool:
        """Multiply gradients by `factor` [], clip their norm, update, clear.

        False: nothing was updated, since with `check` gradients that aren't finite are dropped.
        """

    def sum_async(self, tensor: torch.Tensor) -> Callable[[], None]:
        """Start summing `tensor` over ranks, in place; call the result to wait for it."""
        work = dist.all_reduce(tensor, async_op=True)
        return work.wait if work is not None else lambda: None

    def exposed(self, step: int) -> Exposed | None:
        """Communication of the step just made that computing didn't hide; None where it wasn't measured."""
        return (lambda: 0.0) if self.dp_size == 1 else self._exposed(step)

    @abstractmethod
    def _exposed(self, step: int) -> Exposed | None:
        """`exposed` of several ranks."""

    def counting(self, add: Count) -> AbstractContextManager[object]:
        """While it is entered, `add(name, bytes)` is called for each collective that PyTorch doesn't see."""
        return nullcontext()

    def close(self) -> None:  # noqa: B027  most have nothing to free
        """Free what the strategy holds beside the process group; a collective call."""


def installed(module: str, what: str, value: str, hint: str) -> None:
    """Raise BadInput when this environment lacks the library that a strategy needs."""
    if importlib.util.find_spec(module) is None:
        raise BadInput(Problem(f"this environment has no {what}", key="strategy", value=value, hint=hint))


def scale_and_clip(
    gradients: Sequence[torch.Tensor], factor: torch.Tensor, max_norm: float, *, sharded: bool = False
) -> torch.Tensor:
    """Multiply by `factor`, then limit the norm, in one pass; returns the norm [] after `factor`, before the limit.

    sharded: each rank holds a part of each gradient; one number is all-reduced.
    """
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(list(gradients)))) if gradients else factor * 0
    if sharded:
        square = norm**2
        dist.all_reduce(square)
        norm = square.sqrt()
    norm = norm * factor
    torch._foreach_mul_(list(gradients), factor * (max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm


def applies(norm: torch.Tensor, *, check: bool) -> bool:
    """Whether a step with gradients of this norm is made: always, but for `check`ed ones that aren't finite."""
    return not check or bool(torch.isfinite(norm))
