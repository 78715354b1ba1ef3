"""The LSTM surrogate of the CERN openlab report: hidden 128, 1 layer, dropout 0.2, a linear head."""

from __future__ import annotations

import torch
from torch import nn


class LSTMSurrogate(nn.Module):
    """One value from a window of dynamic inputs and the static features of a cell.

    The static features stand beside the dynamic ones at each step, as in hython's CudaLSTM; dropout acts on the last
    hidden state before the linear head. Normalised units in and out.
    """

    def __init__(self, inputs: int, static: int, *, hidden: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.lstm = nn.LSTM(
            inputs + static, hidden, num_layers=layers, batch_first=True, dropout=dropout if layers > 1 else 0.0
        )
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden, 1)

    def forward(self, window: torch.Tensor, static: torch.Tensor) -> torch.Tensor:
        """window [batch, window, inputs], static [batch, static] -> [batch]."""
        repeated = static[:, None, :].expand(-1, window.shape[1], -1)
        states, _ = self.lstm(torch.cat([window, repeated], dim=-1))
        return self.head(self.dropout(states[:, -1])).squeeze(-1)
