"""bfloat16 on any CPU: with oneDNN's LSTM where it has one, without it elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.needs import needs

pytestmark = needs("torch")

PROGRAM = """
import json, torch
from training.precision import forward_precision, onednn_has_lstm
torch.manual_seed(1)
lstm, head, x = torch.nn.LSTM(3, 8, batch_first=True), torch.nn.Linear(8, 1), torch.randn(4, 5, 3)
exact = head(lstm(x)[0][:, -1])
with forward_precision("bf16", torch.device("cpu")):
    low = head(lstm(x)[0][:, -1])
low.float().sum().backward()
print(json.dumps({
    "kernel": onednn_has_lstm(torch.bfloat16),
    "dtype": str(low.dtype),
    "error": float((low.float() - exact).abs().max().detach()),
    "finite": bool(torch.isfinite(lstm.weight_ih_l0.grad).all()),
    "onednn": torch.backends.mkldnn.enabled,
}))
"""


@pytest.mark.parametrize("isa", [None, "AVX2"], ids=["this CPU", "a CPU without AVX-512"])
def test_bf16_forward_and_backward(isa: str | None) -> None:
    """oneDNN is told which instructions the CPU has, as on a machine that has no more of them."""
    env = os.environ | ({} if isa is None else {"ONEDNN_MAX_CPU_ISA": isa})
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    if isa is not None:
        assert not found["kernel"]
    assert found["dtype"] == "torch.bfloat16"
    assert 0 < found["error"] < 0.02
    assert found["finite"]
    assert found["onednn"]
    assert done.stderr == ""


def test_other_precisions_change_nothing() -> None:
    import torch

    from training.precision import forward_precision

    with forward_precision("fp32", torch.device("cpu")):
        assert torch.nn.Linear(2, 2)(torch.zeros(1, 2)).dtype == torch.float32
