"""How a model is trained by many ranks at once. So far: PyTorch DDP."""

from __future__ import annotations

# DDP and every optimizer import it at first use, 800 modules: here, so that start-up books it as import, not as step
import torch._dynamo  # noqa: F401
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from training.distributed import World


def ddp(model: nn.Module, world: World) -> DistributedDataParallel:
    """A replica on each rank; gradients are averaged by all-reduces that overlap the backward pass."""
    return DistributedDataParallel(
        model.to(world.device), device_ids=[world.device.index] if world.on_gpu else None, gradient_as_bucket_view=True
    )
