"""Number formats of forward passes, on devices that differ in what they can do."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import nn


def forward_precision(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """The context of forward passes: autocast to bfloat16 for `bf16` (weights stay fp32), else as the tensors are."""
    if precision != "bf16":
        return nullcontext()
    if device.type == "cpu" and not onednn_has_bf16_lstm():
        return _bf16_without_onednn()
    return torch.autocast(device.type, dtype=torch.bfloat16)


@functools.cache
def onednn_has_bf16_lstm() -> bool:
    """Whether oneDNN has an LSTM in bfloat16 for this CPU: it wants AVX-512, and raises where that is missing."""
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        try:
            nn.LSTM(2, 2, batch_first=True)(torch.zeros(1, 2, 2))
        except RuntimeError:
            return False
    return True


@contextmanager
def _bf16_without_onednn() -> Iterator[None]:
    """Autocast on PyTorch's own kernels; its LSTM then computes in fp32, the other layers in bfloat16."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the switch also touches settings of other devices, and says so
        with torch.backends.mkldnn.flags(enabled=False), torch.autocast("cpu", dtype=torch.bfloat16):
            yield
