"""bfloat16 on any CPU: with oneDNN's LSTM where it has one, without it elsewhere."""

from __future__ import annotations

import pytest

from tests.needs import needs

pytestmark = needs("torch")


@pytest.mark.parametrize("has_kernel", [True, False])
def test_bf16_forward_and_backward(monkeypatch: pytest.MonkeyPatch, has_kernel: bool) -> None:
    import torch

    from training import precision

    real = precision.onednn_has_bf16_lstm()
    if has_kernel and not real:
        has_kernel = real  # this CPU has none: both cases then prove the way without it
    monkeypatch.setattr(precision, "onednn_has_bf16_lstm", lambda: has_kernel)
    torch.manual_seed(1)
    lstm, head, x = torch.nn.LSTM(3, 8, batch_first=True), torch.nn.Linear(8, 1), torch.randn(4, 5, 3)
    exact = head(lstm(x)[0][:, -1])
    with precision.forward_precision("bf16", torch.device("cpu")):
        low = head(lstm(x)[0][:, -1])
    low.float().sum().backward()
    assert low.dtype == torch.bfloat16
    assert torch.allclose(low.float(), exact, atol=0.02)
    assert not torch.equal(low.float(), exact)
    assert lstm.weight_ih_l0.grad is not None
    assert torch.isfinite(lstm.weight_ih_l0.grad).all()
    assert torch.backends.mkldnn.enabled


def test_other_precisions_change_nothing() -> None:
    import torch

    from training.precision import forward_precision

    with forward_precision("fp32", torch.device("cpu")):
        assert torch.nn.Linear(2, 2)(torch.zeros(1, 2)).dtype == torch.float32
