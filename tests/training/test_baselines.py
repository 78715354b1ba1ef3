"""The baselines, against the same numbers by other means."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.needs import needs

pytestmark = needs("torch", "zarr", "netCDF4")


def test_baselines_of_the_climate_set(climate: Path) -> None:
    """From the stored array with NumPy and SciPy alone: loops over years, a QR factorisation for the fit."""
    import scipy.linalg
    import zarr

    from training.baselines import rmse
    from training.data.layout import read_info
    from training.evaluate import baseline_errors
    from training.samples import build, load

    window = 6
    found = {name: rmse(errors) for name, errors in baseline_errors(build(load(read_info(climate)), window)).items()}

    group = zarr.open_group(climate / "data.zarr", mode="r")
    temperature = np.asarray(group["temperature"][...], dtype=np.float64).reshape(2, 240, -1)
    test_years = [(scenario, year) for scenario in range(2) for year in range(210, 240)]

    def past_mean(steps: int) -> float:
        errors = [temperature[s, y - steps : y].mean(axis=0) - temperature[s, y] for s, y in test_years]
        return float(np.sqrt(np.mean(np.square(errors))))

    assert found["persistence"] == pytest.approx(past_mean(1), rel=1e-5)
    assert found["mean of 5 steps"] == pytest.approx(past_mean(5), rel=1e-5)
    assert found["mean of 10 steps"] == pytest.approx(past_mean(10), rel=1e-5)

    static = np.stack(
        [
            np.asarray(group[name][...], dtype=np.float64).reshape(-1)
            for name in ("cell_latitude", "cell_longitude", "reference_mean", "reference_std")
        ],
        axis=1,
    )

    def design(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
        features, targets = [], []
        for s, y in pairs:
            past = temperature[s, y - window : y].T
            reference = past.mean(axis=1, keepdims=True)
            features.append(np.hstack([past - reference, static, np.ones((len(past), 1))]))
            targets.append(temperature[s, y] - reference[:, 0])
        return np.concatenate(features), np.concatenate(targets)

    # the second scenario is the first up to year 139: it counts once window or target reach year 140
    pairs = [(0, year) for year in range(10, 180)] + [(1, year) for year in range(140, 180)]
    features, target = design(pairs)
    coefficients = scipy.linalg.lstsq(features, target, lapack_driver="gelsy", overwrite_a=True)[0]
    features, target = design(test_years)
    expected = float(np.sqrt(np.mean((features @ coefficients - target) ** 2)))
    assert found["least squares"] == pytest.approx(expected, rel=1e-4)


def test_paired_bootstrap(climate: Path) -> None:
    """The interval against one drawn year by year in plain Python."""
    from training.evaluate import compare

    rng = np.random.default_rng(1)
    years = np.repeat(np.arange(2070, 2090, dtype=np.int32), 50)
    common = np.repeat(rng.normal(size=20), 50)
    reference = common + 0.5 * rng.normal(size=1000)
    runs = [0.9 * reference + 0.05 * rng.normal(size=1000) for _ in range(2)]
    found = compare("x", runs, reference, years)

    squares = np.mean(np.square(runs), axis=0)
    assert found.difference == pytest.approx(np.sqrt(squares.mean()) - np.sqrt(np.mean(reference**2)))
    assert found.worst_seed == pytest.approx(
        max(np.sqrt(np.mean(run**2)) for run in runs) - np.sqrt(np.mean(reference**2))
    )
    differences = []
    for _ in range(4000):
        chosen = [int(year) for year in rng.integers(2070, 2090, 20)]
        rows = np.concatenate([np.flatnonzero(years == year) for year in chosen])
        differences.append(np.sqrt(squares[rows].mean()) - np.sqrt(np.mean(reference[rows] ** 2)))
    width = found.high - found.low
    assert found.low == pytest.approx(np.quantile(differences, 0.025), abs=0.1 * width)
    assert found.high == pytest.approx(np.quantile(differences, 0.975), abs=0.1 * width)
