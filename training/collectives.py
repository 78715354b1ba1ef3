"""Counts collectives: which, how many, how many bytes. For the profiler mode; a measured step is never counted.

PyTorch's collectives (of DDP, FSDP2, DeepSpeed and our own) all pass its dispatcher, also those that DDP's C++ reducer
starts. Bytes are those of the larger side: what a rank gets of an all-gather, gives to a reduce-scatter, and has of an
all-reduce. How much crosses the wire is the algorithm's business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

NAMES = {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "allgather_": "all_gather",
    "_allgather_base_": "all_gather",
    "allgather_into_tensor_coalesced_": "all_gather",
    "reduce_scatter_": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter",
    "reduce_": "reduce",
    "broadcast_": "broadcast",
    "gather_": "gather",
    "scatter_": "scatter",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all",
    "barrier": "barrier",
}
"""Operators of PyTorch's `c10d` -> the field's names."""


class Collectives(TorchDispatchMode):
    """Counts while it is entered: `calls` and `bytes` by name."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def add(self, name: str, size: int) -> None:
        """One collective of so many bytes."""
        self.calls[name] += 1
        self.bytes[name] += size

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Every operator comes by here."""
        namespace, _, operator = func.name().partition("::")
        if namespace == "c10d":
            operator = operator.partition(".")[0]
            # tensors and lists of tensors: outputs and inputs; the larger side counts
            sides = [sum(tensor.nbytes for tensor in tensors(argument)) for argument in args]
            self.add(NAMES.get(operator, operator), max(sides, default=0))
        return func(*args, **(kwargs or {}))


def tensors(argument: Any) -> Iterator[torch.Tensor]:
    """The tensors in an argument, which may be lists of lists of them."""
    if isinstance(argument, torch.Tensor):
        yield argument
    elif isinstance(argument, (list, tuple)):
        for part in argument:
            yield from tensors(part)
