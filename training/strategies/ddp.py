"""PyTorch DDP: a replica on each rank; gradients are averaged by all-reduces that overlap the backward pass.

Exposed communication: what DDP's own timers say of communication in backward less its overlap with computing, in the
steps that they sample.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

# DDP and every optimizer import it at first use, 800 modules: here, so that start-up books it as import, not as step
import torch._dynamo
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from training.distributed import World
from training.strategies.base import Exposed, Request, Strategy, applies, scale_and_clip

SAMPLE_EVERY = 10
"""DDP measures its communication in the first 10 steps and then every so many."""


class DDP(Strategy):
    """The strategy `ddp`."""

    name = "ddp"

    def __init__(self, model: nn.Module, world: World, request: Request) -> None:
        self.dp_size = world.size
        self.plain = model.to(world.device)
        self.model: DistributedDataParallel = DistributedDataParallel(
            self.plain, device_ids=[world.device.index] if world.on_gpu else None, gradient_as_bucket_view=True
        )
        if world.size > 1:
            self.model._set_ddp_runtime_logging_sample_rate(SAMPLE_EVERY)
        self._parameters = list(model.parameters())
        self.optimizer = request.make_optimizer(self._parameters)

    def no_sync(self) -> AbstractContextManager[object]:
        """See `Strategy`."""
        return self.model.no_sync()

    def step(self, factor: torch.Tensor, max_norm: float, *, check: bool = False) -> bool:
        """See `Strategy`."""
        norm = scale_and_clip([p.grad for p in self._parameters if p.grad is not None], factor, max_norm)
        if applied := applies(norm, check=check):
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return applied

    def _exposed(self, step: int) -> Exposed | None:
        """DDP tells of a sampled step when the next sampled one begins, so a sample is one step old in the first 10
        steps and SAMPLE_EVERY steps later on."""
        if step == 0 or (step > SAMPLE_EVERY and step % SAMPLE_EVERY):
            return None  # asking costs 0.1 ms
        data = self.model._get_ddp_logging_data()
        seconds = (int(data["backward_comm_time"]) - int(data["backward_compute_comm_overlap_time"])) * 1e-9
        return lambda: max(seconds, 0.0)
