"""PyTorch DDP: a replica on each rank; gradients are averaged by all-reduces that overlap the backward pass.

Exposed communication: what DDP's own timers say of communication in backward less its overlap with computing, in the
steps that they sample.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

# DDP and every optimizer import it at first use, 800 modules: here, so that start-up books it as import, not as step
import torch._dynamo
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from training.distributed import World
from training.strategies.base import Count, Exposed, Request, scale_and_clip, sum_async, update

SAMPLE_EVERY = 10
"""DDP measures its communication in the first 10 steps and then every so many."""


class DDP:
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

    def backward(self, loss: torch.Tensor) -> None:
        """See `Strategy`."""
        loss.backward()

    def step(self, factor: torch.Tensor, max_norm: float, *, check: bool = False) -> bool:
        """See `Strategy`."""
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        return update(self.optimizer, scale_and_clip(gradients, factor, max_norm), check=check)

    def sum_async(self, tensor: torch.Tensor) -> Callable[[], None]:
        """See `Strategy`."""
        return sum_async(tensor)

    def exposed(self, step: int) -> Exposed | None:
        """See `Strategy`.

        DDP tells of a sampled step when the next sampled one begins, so a sample is one step old in the first 10 steps
        and SAMPLE_EVERY steps later on.
        """
        if self.dp_size == 1:
            return lambda: 0.0
        if step == 0 or (step > SAMPLE_EVERY and step % SAMPLE_EVERY):
            return None  # asking costs 0.1 ms
        data = self.model._get_ddp_logging_data()
        seconds = (int(data["backward_comm_time"]) - int(data["backward_compute_comm_overlap_time"])) * 1e-9
        return lambda: max(seconds, 0.0)

    def counting(self, add: Count) -> AbstractContextManager[object]:
        """See `Strategy`."""
        return nullcontext()

    def state(self) -> dict[str, Any]:
        """See `Strategy`."""
        from torch.distributed.checkpoint.state_dict import get_state_dict

        model, optimizer = get_state_dict(self.plain, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def close(self) -> None:
        """See `Strategy`."""
