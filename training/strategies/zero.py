"""DeepSpeed: stage 0 (a replica on each rank), 1 (optimizer states divided), 2 (gradients too), 3 (parameters too).

The optimizer is PyTorch's own, so nothing has to be compiled at start. DeepSpeed unscales gradients by the loss scale
and clips them in one pass over its flat partitions; the factor of a step is handed to it as that scale.

Exposed communication: the reduction that follows the backward pass (on a GPU: as the computation's stream sees it).
What stage 2 on CPU reduces within backward counts as backward; updated parameters that stages 1 and 2 gather in the
optimizer count there. Stage 3 gathers parameters in both passes where nobody can look: not measured.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from training.distributed import World
from training.strategies.base import Exposed, Request, Strategy, applies, installed, scale_and_clip
from training.strategies.waits import Waits


class Zero(Strategy):
    """The strategies `zero0` to `zero3`."""

    def __init__(self, stage: int, model: nn.Module, world: World, request: Request) -> None:
        deepspeed = load()
        deepspeed.init_distributed(dist_backend=world.backend, dist_init_required=False)
        self.name, self.stage, self.dp_size = f"zero{stage}", stage, world.size
        self.plain = model
        self._parameters = list(model.parameters())
        self.optimizer = request.make_optimizer(self._parameters)
        self.engine, *_ = deepspeed.initialize(
            model=model, optimizer=self.optimizer, config=_config(stage, world, request), dist_init_required=False
        )
        self.model: nn.Module = self.engine
        self.engine.set_gradient_accumulation_boundary(True)
        self._waits = Waits(world)
        self.engine.allreduce_gradients = self._waits.around(self.engine.allreduce_gradients)
        if stage > 0:
            self.engine.optimizer.override_loss_scale(1.0)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """See `Strategy`."""
        self.engine.set_gradient_accumulation_boundary(False)
        try:
            yield
        finally:
            self.engine.set_gradient_accumulation_boundary(True)

    def backward(self, loss: torch.Tensor) -> None:
        """See `Strategy`."""
        self.engine.backward(loss, scale_wrt_gas=False)

    def step(self, factor: torch.Tensor, max_norm: float, *, check: bool = False) -> bool:
        """See `Strategy`. From stage 1 on gradients that aren't finite are always dropped."""
        if self.stage == 0:
            norm = scale_and_clip([p.grad for p in self._parameters if p.grad is not None], factor, max_norm)
            if applied := applies(norm, check=check):
                self.engine.step()
            else:
                self.engine.zero_grad()
            return applied
        sharded = self.engine.optimizer
        sharded.external_loss_scale = float(factor.reciprocal())
        self.engine.step()
        sharded.external_loss_scale = 1.0
        return not sharded.overflow

    def _exposed(self, step: int) -> Exposed | None:
        """See `Strategy`."""
        return None if self.stage == 3 else self._waits.take()

    def close(self) -> None:
        """See `Strategy`."""
        self.engine.destroy()


def _config(stage: int, world: World, request: Request) -> dict[str, Any]:
    micro, count = request.micro_batch, request.micro_batches
    return {
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": count,
        "train_batch_size": micro * count * world.size,
        "zero_optimization": {"stage": stage, "overlap_comm": world.on_gpu, "contiguous_gradients": True},
        "zero_allow_untested_optimizer": True,
        # stage 0 clips here, with the factor of the step
        "gradient_clipping": request.max_norm if stage > 0 else 0.0,
        "steps_per_print": 2**62,
    }


def load() -> Any:
    """Import the package, told to compile nothing and to keep off the home directory. Raises BadInput without it."""
    installed("deepspeed", "DeepSpeed", "zero0 to zero3", "pip install 'campaign[deepspeed]', or strategy: fsdp2")
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.environ.setdefault("LOCAL_RANK", "0")  # a single process without a launcher: DeepSpeed insists on it
    import deepspeed
    import deepspeed.ops
    import deepspeed.runtime.zero.muon.muon_optimizer  # 700 modules, which `initialize` imports otherwise
    from deepspeed.utils import logger

    logger.setLevel(logging.ERROR)  # each rank warns of SGD, which it calls untested
    # it calls collectives by the names that PyTorch 2.13 has renamed
    warnings.filterwarnings("ignore", r".*(all_gather_into_tensor|reduce_scatter_tensor)", FutureWarning)
    # its shared-memory collectives for CPUs are compiled at start, by every rank, in ~/.cache
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed
