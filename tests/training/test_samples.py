"""What trains, what tests: nothing of the years to be predicted is known before, and nothing counts twice."""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from campaign.errors import BadInput
from tests.needs import needs

if typing.TYPE_CHECKING:
    from training.samples import Samples, Series

pytestmark = needs("torch", "zarr", "netCDF4")

WINDOW = 10


@pytest.fixture(scope="module")
def series(climate: Path) -> Series:
    """The climate data, every seventh cell: enough for each property, and quick."""
    from training.data.layout import read_info
    from training.samples import load

    whole = load(read_info(climate))
    some = np.flatnonzero(np.arange(len(whole.target)) % 1813 % 7 == 0)
    names = ("inputs", "target", "static", "scenario")
    return dataclasses.replace(whole, **{name: getattr(whole, name)[some] for name in names})


@pytest.fixture(scope="module")
def parts(series: Series) -> dict[Any, Samples]:
    from training.samples import build

    return build(series, WINDOW)


def known_years(samples: Samples) -> np.ndarray:
    """[samples, window + 1]: the years of everything that a sample holds, target last."""
    steps = samples.step_of.numpy()[:, None] + np.arange(-WINDOW, 1)
    return samples.series.year[steps]


def test_targets_are_split_by_year_in_order_of_time(parts: dict[Any, Samples]) -> None:
    years = {part: np.unique(samples.years()) for part, samples in parts.items()}
    assert years["train"].tolist() == list(range(1870, 2040))
    assert years["validation"].tolist() == list(range(2040, 2070))
    assert years["test"].tolist() == list(range(2070, 2100))


def test_nothing_of_a_later_part_is_known_before(parts: dict[Any, Samples]) -> None:
    """Windows included, and for both scenarios: the other scenario's same year would give the answer away."""
    assert known_years(parts["train"]).max() < 2040
    assert known_years(parts["validation"]).max() < 2070
    for part in parts.values():
        assert set(part.series.scenario[part.series_of.numpy()]) == {0, 1}
        # what a model sees ends before the year that it predicts
        assert (known_years(part)[:, :-1].max(axis=1) == part.years() - 1).all()


def test_values_of_the_test_years_are_in_no_training_sample(series: Series, parts: dict[Any, Samples]) -> None:
    """By the values themselves, not by the bookkeeping: temperatures of a cell hardly ever repeat to the last bit."""
    import torch

    def values(part: str) -> set[bytes]:
        samples = parts[part]
        window, target, reference = samples.raw(torch.arange(len(samples)))
        numbers = torch.cat([window[..., 0], target[:, None]], dim=1) + reference[:, None]
        return {row.tobytes() for row in numbers.numpy()}

    train, test = values("train"), values("test")
    assert not train & test
    assert len(train) == len(parts["train"])  # and none trains twice, though the scenarios share 140 years
    assert len(test) == len(parts["test"])


def test_shared_years_of_the_scenarios_train_once(series: Series, parts: dict[Any, Samples]) -> None:
    train = parts["train"]
    cells = len(series.target) // 2
    per_year = {
        scenario: np.unique(train.years()[series.scenario[train.series_of.numpy()] == scenario], return_counts=True)
        for scenario in (0, 1)
    }
    assert per_year[0][0].tolist() == list(range(1870, 2040))
    assert set(per_year[0][1]) == {cells}
    assert per_year[1][0].tolist() == list(range(2000, 2040))  # one run up to 1999
    assert set(per_year[1][1]) == {cells}


def test_statistics_come_from_training_years_only(series: Series, parts: dict[Any, Samples]) -> None:
    from training.samples import build

    changed = dataclasses.replace(series, inputs=series.inputs.copy(), target=series.target.copy())
    changed.inputs[:, 180:] += 17.0 * np.random.default_rng(0).random(changed.inputs[:, 180:].shape, dtype=np.float32)
    changed.target[:, 180:] = changed.inputs[:, 180:, 0]
    later = build(changed, WINDOW)
    assert_same_scales(later["train"], parts["train"])
    batch, before = later["train"].__getitems__([0, 5]), parts["train"].__getitems__([0, 5])
    for name, tensor in batch._asdict().items():
        np.testing.assert_array_equal(tensor.numpy(), getattr(before, name).numpy(), err_msg=name)

    changed.inputs[:, 100] += 3.0  # and a training year does matter
    changed.target[:, 100] += 3.0
    with pytest.raises(AssertionError):
        assert_same_scales(build(changed, WINDOW)["train"], parts["train"])


def assert_same_scales(one: Samples, other: Samples) -> None:
    for name in ("input_mean", "input_std", "target_mean", "target_std", "static_mean", "static_std"):
        np.testing.assert_array_equal(getattr(one.scales, name), getattr(other.scales, name), err_msg=name)


def test_a_batch_by_hand(series: Series, parts: dict[Any, Samples]) -> None:
    """Window less its mean, target less the window's mean, both over their deviation in all training samples."""
    train, test = parts["train"], parts["test"]
    targets, windows = [], []
    for which, step in zip(train.series_of.tolist(), train.step_of.tolist(), strict=True):
        past = series.target[which, step - WINDOW : step].astype(np.float64)
        windows.append(past - past.mean())
        targets.append(series.target[which, step] - past.mean())
    batch = test.__getitems__([3, 2000])
    assert batch.window.shape == (2, WINDOW, 1)
    for row, index in enumerate((3, 2000)):
        which, step = int(test.series_of[index]), int(test.step_of[index])
        past = series.target[which, step - WINDOW : step].astype(np.float64)
        expected = (past - past.mean() - np.mean(windows)) / np.std(windows)
        np.testing.assert_allclose(batch.window[row, :, 0], expected, atol=2e-4)
        expected = (series.target[which, step] - past.mean() - np.mean(targets)) / np.std(targets)
        np.testing.assert_allclose(batch.target[row], expected, atol=2e-4)
        static = series.static.astype(np.float64)
        np.testing.assert_allclose(
            batch.static[row], (static[which] - static.mean(axis=0)) / static.std(axis=0), atol=2e-4
        )


def test_forcing_of_the_same_step(bucket: Path) -> None:
    """A data set with lead 0: the window ends with the target's own step, and the target is not an input."""
    from training.data.layout import read_info
    from training.samples import build, load

    series = load(read_info(bucket))
    assert series.inputs.shape == (7, 96, 3)
    samples = build(series, 4)["test"]
    import torch

    window, target, reference = samples.raw(torch.tensor([5]))
    which, step = int(samples.series_of[5]), int(samples.step_of[5])
    np.testing.assert_array_equal(window[0], series.inputs[which, step - 3 : step + 1])
    assert float(target) == series.target[which, step]
    assert float(reference) == 0.0


def test_fractions(parts: dict[Any, Samples]) -> None:
    train = parts["train"]
    some = train.fraction(0.1, seed=5)
    assert len(some) == round(0.1 * len(train))

    def identity(samples: Samples) -> set[tuple[int, int]]:
        return set(zip(samples.series_of.tolist(), samples.step_of.tolist(), strict=True))

    assert len(identity(some)) == len(some)
    assert identity(some) < identity(train)
    assert identity(train.fraction(0.1, seed=5)) == identity(some)
    assert identity(train.fraction(0.1, seed=6)) != identity(some)
    assert_same_scales(some, train)
    assert train.fraction(1.0, seed=5) is train
    assert len(train.fraction(1e-9, seed=5)) == 1


def test_without_validation_years(series: Series) -> None:
    """What the final fit takes: all years before the test years, and statistics of all of them."""
    from training.samples import Split, build

    parts = build(series, WINDOW, Split(2070, 2070))
    assert sorted(parts) == ["test", "train"]
    assert np.unique(parts["train"].years()).tolist() == list(range(1870, 2070))
    assert known_years(parts["train"]).max() < 2070
    assert np.unique(parts["test"].years()).tolist() == list(range(2070, 2100))
    changed = dataclasses.replace(series, inputs=series.inputs.copy(), target=series.target.copy())
    changed.inputs[:, 210:], changed.target[:, 210:] = 0.0, 0.0
    assert_same_scales(build(changed, WINDOW, Split(2070, 2070))["train"], parts["train"])


def test_static_features_of_later_years_are_refused(series: Series) -> None:
    from training.samples import build

    leaking = dataclasses.replace(series, task=dataclasses.replace(series.task, static_years=(1990, 2040)))
    with pytest.raises(BadInput, match="years that validate or test") as error:
        build(leaking, WINDOW)
    assert "before 2040" in str(error.value)


def test_too_little_history(series: Series) -> None:
    from training.samples import build, split_years

    with pytest.raises(BadInput, match="no train samples") as error:
        build(series, 200)
    assert error.value.problems[0].value == 200
    with pytest.raises(BadInput, match="too few years"):
        split_years(np.array([2001, 2002, 2003], dtype=np.int32))
    assert split_years(np.array([2001, 2002, 2003, 2004], dtype=np.int32)) == (2003, 2004)
