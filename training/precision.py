"""Number formats of forward passes, on devices that differ in what they can do."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import nn

_LOWER = {"bf16": torch.bfloat16, "fp16": torch.float16}


def forward_precision(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """The context of forward passes: autocast for `bf16` and `fp16` (weights stay fp32), else as the tensors are."""
    dtype = _LOWER.get(precision)
    if dtype is None:
        return nullcontext()
    if device.type == "cpu" and not onednn_has_lstm(dtype):
        return _without_onednn(dtype)
    return torch.autocast(device.type, dtype=dtype)


@functools.cache
def onednn_has_lstm(dtype: torch.dtype) -> bool:
    """Whether oneDNN has an LSTM in this format for this CPU: it wants AVX-512, and raises where that is missing."""
    with torch.no_grad(), torch.autocast("cpu", dtype=dtype):
        try:
            nn.LSTM(2, 2, batch_first=True)(torch.zeros(1, 2, 2))
        except RuntimeError:
            return False
    return True


@contextmanager
def _without_onednn(dtype: torch.dtype) -> Iterator[None]:
    """Autocast on PyTorch's own kernels; its LSTM then computes in fp32, the other layers in `dtype`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the switch also touches settings of other devices, and says so
        with torch.backends.mkldnn.flags(enabled=False), torch.autocast("cpu", dtype=dtype):
            yield


class LossScale:
    """The factor that keeps small fp16 gradients from becoming 0; `first` None: 1 for ever, for all other formats.

    It is halved after a step whose gradients weren't finite, doubled after `GROWTH_STEPS` good ones: the rule and the
    numbers of `torch.amp.GradScaler`, which can't be used with DeepSpeed.
    """

    GROWTH_STEPS = 2000

    def __init__(self, first: float | None) -> None:
        self.on = first is not None
        self.value = first or 1.0
        self._good = 0

    def stepped(self, *, applied: bool) -> None:
        """A step was applied, or left out since its gradients weren't finite."""
        if not self.on:
            return
        self._good = self._good + 1 if applied else 0
        if not applied:
            self.value /= 2
        elif self._good == self.GROWTH_STEPS:
            self.value, self._good = self.value * 2, 0
