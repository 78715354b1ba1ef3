"""How a model is trained by many ranks at once: one protocol, a module for each library.

`prepare` makes the strategy that a study names; a library is imported only when it is asked for, by `load` so that its
time counts as import.
"""

from __future__ import annotations

import importlib
from typing import Any

from torch import nn

from training.distributed import World
from training.strategies.base import Exposed, Request, Strategy
from training.strategies.ddp import DDP

__all__ = ["NAMES", "Exposed", "Request", "Strategy", "load", "prepare"]

NAMES = ("ddp", "fsdp2", "zero0", "zero1", "zero2", "zero3", "horovod")
_MODULES = {"fsdp2": "fsdp", "horovod": "horovod"} | {f"zero{stage}": "zero" for stage in range(4)}


def load(name: str) -> None:
    """Import what the strategy `name` needs. Raises BadInput when its library is missing or too old."""
    if name in _MODULES:
        _module(name).load()


def prepare(name: str, model: nn.Module, world: World, request: Request) -> Strategy:
    """The strategy `name` for `model`, which has the same weights on every rank; a collective call.

    Raises BadInput as `load` does.
    """
    if name == "ddp":
        return DDP(model, world, request)
    module = _module(name)
    if name == "fsdp2":
        made: Strategy = module.FSDP2(model, world, request)
    elif name == "horovod":
        made = module.Horovod(model, world, request)
    else:
        made = module.Zero(int(name.removeprefix("zero")), model, world, request)
    return made


def _module(name: str) -> Any:
    return importlib.import_module(f"training.strategies.{_MODULES[name]}")
