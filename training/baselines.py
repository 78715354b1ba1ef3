"""What a model must beat: persistence, means of past steps, and least squares on the model's own inputs.

Every function gives errors (predicted minus true target), [samples] float64 in the target's units, in sample order.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from training.samples import Samples

Errors = npt.NDArray[np.float64]
BLOCK = 65536
RIDGE = 1e-9
"""Relative to the mean diagonal: windows less their mean add up to 0, so the normal equations are singular."""


def past_mean(samples: Samples, steps: int) -> Errors:
    """The mean of the `steps` steps before the target; 1 is persistence."""
    errors = []
    for index in torch.arange(len(samples)).split(BLOCK):
        history = samples.history(index, steps).double().mean(dim=1)
        _, target, reference = samples.raw(index)
        errors.append((history - (target.double() + reference.double())).numpy())
    return np.concatenate(errors)


def least_squares(train: Samples, test: Samples) -> Errors:
    """A linear fit on what the model sees (normalised window and static features, and 1), over all of `train`."""
    coefficients = fit_least_squares(train)
    errors = []
    for index in torch.arange(len(test)).split(BLOCK):
        features, target = _design(test, index)
        errors.append(((features @ coefficients - target) * test.scales.target_std).numpy())
    return np.concatenate(errors)


def fit_least_squares(train: Samples) -> torch.Tensor:
    """[window * inputs + static + 1] float64 coefficients of the normalised target, by the normal equations."""
    size = _design(train, torch.arange(1))[0].shape[1]
    gram, moment = torch.zeros(size, size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64)
    for index in torch.arange(len(train)).split(BLOCK):
        features, target = _design(train, index)
        gram += features.T @ features
        moment += features.T @ target
    gram += RIDGE * gram.diagonal().mean() * torch.eye(size, dtype=torch.float64)
    return torch.linalg.solve(gram, moment)


def _design(samples: Samples, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Features [n, window * inputs + static + 1] and normalised targets [n], float64."""
    batch = samples.__getitems__(index)
    ones = torch.ones(len(index), 1, dtype=torch.float64)
    return torch.cat([batch.window.flatten(1).double(), batch.static.double(), ones], dim=1), batch.target.double()


def rmse(errors: Errors) -> float:
    """Root of the mean square."""
    return float(np.sqrt(np.mean(errors**2)))
