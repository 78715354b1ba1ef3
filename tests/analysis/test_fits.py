"""Amdahl's law against SciPy's solver and against data of known truth; Karp-Flatt against its definition."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from analysis.fits import fit_amdahl, karp_flatt


def measured(
    serial: float, parallel: float, sizes: list[int], repeats: int, noise: float, seed: int
) -> list[tuple[int, float]]:
    random_ = random.Random(seed)
    return [
        (size, (serial + parallel * sizes[0] / size) * random_.gauss(1, noise))
        for size in sizes
        for _ in range(repeats)
    ]


def test_exact_data_give_the_parameters_back() -> None:
    fit = fit_amdahl([(size, 3 + 40 * 4 / size) for size in (4, 8, 16, 32)], 4)
    assert fit is not None
    assert (fit.serial_s, fit.parallel_s) == (pytest.approx(3), pytest.approx(40))
    assert fit.serial_share == pytest.approx(3 / 43)
    assert fit.residual == pytest.approx(0, abs=1e-9)
    assert fit.predict(64) == pytest.approx(3 + 40 / 16)


@settings(max_examples=40, deadline=None)
@given(
    times=st.lists(st.tuples(st.sampled_from([1, 2, 4, 8, 16]), st.floats(1e-3, 1e3)), min_size=8, max_size=20).filter(
        lambda pairs: len({size for size, _ in pairs}) >= 4
    )
)
def test_least_squares_agrees_with_scipy(times: list[tuple[int, float]]) -> None:
    fit = fit_amdahl(times, 1)
    assert fit is not None
    sizes, seconds = (np.array(column, dtype=float) for column in zip(*times, strict=True))
    design = np.column_stack([1 / seconds, 1 / sizes / seconds])
    (serial, parallel), _ = nnls(design, np.ones(len(times)))

    def objective(a: float, b: float) -> float:
        return float((((a + b / sizes) / seconds - 1) ** 2).sum())

    assert objective(fit.serial_s, fit.parallel_s) <= objective(serial, parallel) * (1 + 1e-9) + 1e-12
    assert fit.serial_s >= 0
    assert fit.parallel_s >= 0


@pytest.mark.parametrize(("repeats", "method"), [(5, "runs"), (1, "residuals")])
def test_the_interval_covers_the_truth_about_as_often_as_it_says(repeats: int, method: str) -> None:
    truth, sizes, covered = 5 / 105, [4, 8, 16, 32, 64, 128], 0
    for seed in range(60):
        fit = fit_amdahl(measured(5, 100, sizes, repeats, 0.05, seed), 4)
        assert fit is not None
        assert fit.method == method
        assert fit.share_lo <= fit.serial_share <= fit.share_hi
        covered += fit.share_lo <= truth <= fit.share_hi
    assert covered >= 0.8 * 60


def test_the_same_runs_give_the_same_interval_in_any_order() -> None:
    times = measured(5, 100, [4, 8, 16, 32], 3, 0.05, 1)
    assert fit_amdahl(times, 4) == fit_amdahl(times[::-1], 4)


def test_fewer_than_four_world_sizes_are_not_fitted() -> None:
    assert fit_amdahl(measured(5, 100, [4, 8, 16], 9, 0.01, 1), 4) is None
    assert fit_amdahl([], 1) is None
    # runs that measured nothing are no points
    assert fit_amdahl([(4, 9.0), (8, 5.0), (16, 3.0), (32, 0.0)], 4) is None


def test_superlinear_scaling_has_no_negative_serial_part() -> None:
    fit = fit_amdahl([(size, 100 / size**1.2) for size in (1, 2, 4, 8)], 1)
    assert fit is not None
    assert fit.serial_s == 0
    assert fit.serial_share == 0


def test_time_that_grows_with_world_size_is_all_serial() -> None:
    fit = fit_amdahl([(size, 10.0 * size) for size in (1, 2, 4, 8)], 1)
    assert fit is not None
    assert (fit.parallel_s, fit.serial_share) == (0, 1)


def test_nothing_is_said_beyond_twice_the_largest_world_size() -> None:
    fit = fit_amdahl([(size, 1 + 8 / size) for size in (1, 2, 4, 8)], 1)
    assert fit is not None
    assert fit.predict(16) == pytest.approx(1.5)
    for size in (16.1, 1000, 0, -4):
        with pytest.raises(ValueError, match="outside 0 to 16"):
            fit.predict(size)


@pytest.mark.parametrize("serial", [0.0, 0.01, 0.3, 1.0])
@pytest.mark.parametrize("q", [2.0, 16.0, 4096.0])
def test_karp_flatt_is_the_serial_fraction_of_amdahls_law(serial: float, q: float) -> None:
    speedup = 1 / (serial + (1 - serial) / q)
    assert karp_flatt(speedup, q) == pytest.approx(serial, abs=1e-12)


@pytest.mark.parametrize(("speedup", "q"), [(1.0, 1.0), (None, 4.0), (2.0, None), (0.0, 4.0), (1.0, 0.5)])
def test_karp_flatt_is_undefined_at_the_baseline_and_without_speedup(speedup: float | None, q: float | None) -> None:
    assert karp_flatt(speedup, q) is None
