"""PyTorch FSDP2 (`fully_shard`): parameters, gradients and optimizer states are divided over the ranks.

Weights are gathered in their own format, fp32; gradients are reduced in it too. Lower precision is the forward pass's
business (autocast), as for the other strategies.

Exposed communication. On CPU the collectives of gloo block the rank, so it is the time inside of them. On a GPU it is
how long the stream of the computation waited for gathered parameters and copied them out; the wait at the end of
backward for the last reduction counts, too.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from campaign.errors import BadInput, Problem
from training.distributed import World
from training.strategies.base import Exposed, Request, Strategy, applies, scale_and_clip
from training.strategies.waits import Waits


class FSDP2(Strategy):
    """The strategy `fsdp2`."""

    name = "fsdp2"

    def __init__(self, model: nn.Module, world: World, request: Request) -> None:
        fully_shard = load()
        # about views that are changed in place, which no model here does; recurrent layers always return views
        warnings.filterwarnings("ignore", r"FSDP2-wrapped module .* returned a view", UserWarning)
        self.dp_size = world.size
        mesh = init_device_mesh(world.device.type, (world.size,))
        model = model.to(world.device)
        for layer in model.children():
            if any(True for _ in layer.parameters()):
                fully_shard(layer, mesh=mesh)
        self.plain = self.model = fully_shard(model, mesh=mesh)
        self._parameters = list(model.parameters())
        self.optimizer = request.make_optimizer(self._parameters)
        self._waits = _watch(model, world)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """See `Strategy`."""
        self.model.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self.model.set_requires_gradient_sync(True)

    def step(self, factor: torch.Tensor, max_norm: float, *, check: bool = False) -> bool:
        """See `Strategy`."""
        gradients = [_local(p.grad) for p in self._parameters if p.grad is not None]
        if applied := applies(scale_and_clip(gradients, factor, max_norm, sharded=True), check=check):
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return applied

    def _exposed(self, step: int) -> Exposed | None:
        """See `Strategy`."""
        return None if self._waits is None else self._waits.take()


def load() -> Any:
    """Import it. Raises BadInput when this PyTorch is too old."""
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        message = f"fsdp2 needs PyTorch 2.6 or later; this is {torch.__version__}"
        raise BadInput(Problem(message, key="strategy", value="fsdp2", hint="strategy: ddp")) from None
    return fully_shard


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a DTensor that is on this rank."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _watch(model: nn.Module, world: World) -> Waits | None:
    """Time where this rank, or its stream, waits for the others. None: this PyTorch keeps its parts elsewhere."""
    waits = Waits(world)
    try:
        groups = [group for module in model.modules() if hasattr(module, "_get_fsdp_state")
                  for group in module._get_fsdp_state()._fsdp_param_groups]  # fmt: skip
        for group in groups:
            if world.on_gpu:
                group.wait_for_unshard = waits.around(group.wait_for_unshard)
                group.finalize_backward = waits.around(group.finalize_backward)
            else:
                group._all_gather_comm = _Timed(group._all_gather_comm, waits)
                group._reduce_scatter_comm = _Timed(group._reduce_scatter_comm, waits)
    except AttributeError:
        return None
    return waits


class _Timed:
    """One of FSDP2's communication primitives, timed."""

    def __init__(self, comm: Any, waits: Waits) -> None:
        self.allocate = comm.allocate
        self._call = waits.around(comm)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)
