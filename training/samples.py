"""Samples of a prepared data set: which years train, validate and test, and what a model gets to see.

A sample is one cell (of one scenario) at one target time step. Its input is the window of `window` steps that ends
`lead` steps before the target, and the cell's static features.

**Split.** By the year of the target, in order of time: the last eighth of the years tests, the eighth before it
validates, all earlier ones train. Neighbouring cells are nearly the same series and the scenarios share most of their
years, so a split over cells, scenarios or single samples would put the answers into the training set. Because windows
look back only, no training sample holds a value of a validation or test year.

**Duplicates.** Where two scenarios are the same in window and target, the sample is taken once.

**Statistics** (scales, means) come from training samples and training years only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import zarr
from torch.utils.data import Dataset

from campaign.errors import BadInput, Problem

if TYPE_CHECKING:
    from training.data.layout import DatasetInfo, Task

Part = Literal["train", "validation", "test"]
HISTORY = 10
"""Steps of history that every sample has at least: baselines average up to 10 of them."""


class Split(NamedTuple):
    """First year of each later part: train < validation <= year < test <= ..."""

    validation: int
    test: int

    def part(self, year: npt.NDArray[np.int32]) -> npt.NDArray[np.int8]:
        """0 train, 1 validation, 2 test for each year."""
        return (year >= self.validation).astype(np.int8) + (year >= self.test).astype(np.int8)


class Batch(NamedTuple):
    """What a model trains on. All in normalised units."""

    window: torch.Tensor
    """[batch, window, inputs]"""
    static: torch.Tensor
    """[batch, static]"""
    target: torch.Tensor
    """[batch]"""
    index: torch.Tensor
    """[batch] int64: place of the sample in its `Samples`."""


def split_years(year: npt.NDArray[np.int32]) -> Split:
    """The last eighth of the years tests, the eighth before validates. Raises BadInput below 4 years."""
    years = np.unique(year)
    if len(years) < 4:
        raise BadInput(
            Problem(
                "too few years to split", key="years", value=len(years), allowed="at least 4 (train, validate, test)"
            )
        )
    eighth = max(1, round(len(years) / 8))
    return Split(int(years[-2 * eighth]), int(years[-eighth]))


@dataclass(frozen=True, slots=True)
class Series:
    """The data set in memory; a series is one cell of one scenario."""

    task: Task
    year: npt.NDArray[np.int32]
    """[time]"""
    inputs: npt.NDArray[np.float32]
    """[series, time, inputs], physical units"""
    target: npt.NDArray[np.float32]
    """[series, time], physical units"""
    static: npt.NDArray[np.float32]
    """[series, static], physical units"""
    scenario: npt.NDArray[np.int64]
    """[series]"""
    target_units: str


def load(info: DatasetInfo) -> Series:
    """Read what the task needs, and no more; cells with missing values are left out."""
    task = info.task
    group = zarr.open_group(info.zarr_path, mode="r")
    try:
        dynamic = {name: _array(group, name) for name in dict.fromkeys((*task.inputs, task.target))}
        static = [_array(group, name).reshape(-1) for name in task.static]
        year = _array(group, "year").astype(np.int32)
    except (KeyError, OSError, ValueError) as error:
        raise BadInput(
            Problem(
                f"damaged: {error}",
                file=str(info.zarr_path),
                hint="campaign data prepare hydrology --force, same --dest",
            )
        ) from None
    scenarios, steps = dynamic[task.target].shape[:2]

    def as_series(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        return np.moveaxis(values.reshape(scenarios, steps, -1), 1, 2).reshape(-1, steps)

    inputs = np.stack([as_series(dynamic[name]) for name in task.inputs], axis=-1)
    target = as_series(dynamic[task.target])
    features = np.tile(np.stack(static, axis=-1), (scenarios, 1))
    scenario = np.repeat(np.arange(scenarios), len(target) // scenarios)
    whole = np.isfinite(inputs).all(axis=(1, 2)) & np.isfinite(target).all(axis=1) & np.isfinite(features).all(axis=1)
    units = str(group[task.target].attrs["units"])
    return Series(task, year, inputs[whole], target[whole], features[whole], scenario[whole], units)


def _array(group: zarr.Group, name: str) -> npt.NDArray[np.float32]:
    return np.asarray(group[name][...])


@dataclass(frozen=True, slots=True)
class Scales:
    """Statistics of the training part; windows and targets are (value - reference - mean) / std."""

    input_mean: torch.Tensor
    """[inputs]"""
    input_std: torch.Tensor
    target_mean: float
    target_std: float
    static_mean: torch.Tensor
    """[static]"""
    static_std: torch.Tensor


class Samples(Dataset[Batch]):
    """The samples of one part, in memory. `samples[[3, 1, 2]]` is a `Batch`, gathered in one go.

    `series_of` and `step_of` [samples] say which series and target time step a sample is.
    """

    def __init__(
        self, series: Series, window: int, series_of: npt.NDArray[np.int64], step_of: npt.NDArray[np.int64]
    ) -> None:
        self.series, self.window = series, window
        self.series_of, self.step_of = torch.from_numpy(series_of), torch.from_numpy(step_of)
        self._inputs, self._target = torch.from_numpy(series.inputs), torch.from_numpy(series.target)
        self._static = torch.from_numpy(series.static)
        self._offsets = torch.arange(-window + 1, 1) - series.task.lead
        self._reference_input = (
            series.task.inputs.index(series.task.target) if series.task.subtract_window_mean else None
        )
        self.scales = _unit_scales(series)

    def __len__(self) -> int:
        return len(self.step_of)

    def raw(self, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(window [n, window, inputs], target [n], reference [n]) of samples; physical units less the reference."""
        which, step = self.series_of[index], self.step_of[index]
        window = self._inputs[which[:, None], step[:, None] + self._offsets]
        target = self._target[which, step]
        reference = torch.zeros_like(target)
        if self._reference_input is not None:
            reference = window[..., self._reference_input].mean(dim=1)
            window = window.clone()
            window[..., self._reference_input] -= reference[:, None]
        return window, target - reference, reference

    def __getitems__(self, indices: list[int]) -> Batch:
        """The batch of these samples; PyTorch's loader calls this with all indices of a batch."""
        index = torch.as_tensor(indices)
        window, target, _ = self.raw(index)
        scales = self.scales
        return Batch(
            (window - scales.input_mean) / scales.input_std,
            (self._static[self.series_of[index]] - scales.static_mean) / scales.static_std,
            (target - scales.target_mean) / scales.target_std,
            index,
        )

    def __getitem__(self, index: int) -> Batch:
        return self.__getitems__([index])

    def history(self, index: torch.Tensor, steps: int) -> torch.Tensor:
        """[n, steps]: the target variable in the `steps` steps before the target, physical units."""
        which, step = self.series_of[index], self.step_of[index]
        return self._target[which[:, None], step[:, None] + torch.arange(-steps, 0)]

    def years(self) -> npt.NDArray[np.int32]:
        """[samples] year of the target."""
        return self.series.year[self.step_of.numpy()]

    def fraction(self, fraction: float, seed: int) -> Samples:
        """A random share of the samples, drawn once from `seed`; the same on every rank and machine. At least one."""
        if fraction >= 1.0:
            return self
        count = max(1, round(fraction * len(self)))
        chosen = np.sort(np.random.Generator(np.random.PCG64(seed)).permutation(len(self))[:count])
        part = Samples(self.series, self.window, self.series_of.numpy()[chosen], self.step_of.numpy()[chosen])
        part.scales = self.scales
        return part


def build(series: Series, window: int, split: Split | None = None) -> dict[Part, Samples]:
    """Training, validation and test samples, all with the statistics of the training part.

    A split whose parts validation and test begin in the same year has no validation part. Raises BadInput when another
    part is empty, or when static features were computed from years that don't train.
    """
    split = split or split_years(series.year)
    task = series.task
    if task.static_years is not None and task.static_years[1] >= split.validation:
        raise BadInput(
            Problem(
                "static features were computed from years that validate or test",
                key="static_years",
                value=list(task.static_years),
                allowed=f"years before {split.validation}",
            )
        )
    steps = len(series.year)
    first = max(window - 1 + task.lead, HISTORY)
    part_of_step = split.part(series.year)
    keep = ~_duplicates(series, window)
    keep[:, :first] = False
    parts: dict[Part, Samples] = {}
    for number, part in enumerate(_PARTS):
        if part == "validation" and split.validation == split.test:
            continue
        series_of, step_of = np.nonzero(keep & (part_of_step == number)[None, :])
        if len(step_of) == 0:
            raise BadInput(
                Problem(
                    f"no {part} samples",
                    key="window",
                    value=window,
                    allowed=f"the data set has {steps} time steps in {len(np.unique(series.year))} years; "
                    f"the first {first} have no full history",
                )
            )
        parts[part] = Samples(series, window, series_of.astype(np.int64), step_of.astype(np.int64))
    scales = _training_scales(parts["train"], split)
    for samples in parts.values():
        samples.scales = scales
    return parts


_PARTS: tuple[Part, ...] = ("train", "validation", "test")


def _duplicates(series: Series, window: int) -> npt.NDArray[np.bool_]:
    """[series, time]: the same cell of an earlier scenario has the same values in window and target."""
    same = np.zeros(series.target.shape, dtype=bool)
    scenarios = np.unique(series.scenario)
    span = window + series.task.lead
    members = {scenario: series.scenario == scenario for scenario in scenarios}
    for later in scenarios:
        for earlier in scenarios[scenarios < later]:
            if members[later].sum() != members[earlier].sum():
                continue  # different cells are missing: nothing to compare
            equal = (series.inputs[members[later]] == series.inputs[members[earlier]]).all(axis=-1)
            equal &= series.target[members[later]] == series.target[members[earlier]]
            run = np.cumsum(equal, axis=1)
            full = np.zeros_like(equal)
            full[:, span - 1 :] = run[:, span - 1 :] - np.pad(run, ((0, 0), (1, 0)))[:, :-span] == span
            same[members[later]] |= full
    return same


def _unit_scales(series: Series) -> Scales:
    inputs, static = series.inputs.shape[-1], series.static.shape[-1]
    return Scales(torch.zeros(inputs), torch.ones(inputs), 0.0, 1.0, torch.zeros(static), torch.ones(static))


def _training_scales(train: Samples, split: Split) -> Scales:
    """Means and deviations of training targets, of inputs in training years (less the reference), of training cells."""
    series = train.series
    total = torch.zeros(2, series.inputs.shape[-1], dtype=torch.float64)
    target_total = np.zeros(2)
    for index in torch.arange(len(train)).split(65536):
        window, target, _ = train.raw(index)
        flat = window.double().flatten(0, 1)
        total += torch.stack([flat.sum(dim=0), (flat**2).sum(dim=0)])
        target_total += [float(target.double().sum()), float((target.double() ** 2).sum())]
    mean, square = total / (len(train) * train.window)
    target_mean, target_square = target_total / len(train)
    cells = torch.from_numpy(series.static[np.unique(train.series_of.numpy())]).double()
    return Scales(
        mean.float(),
        _std(square - mean**2),
        float(target_mean),
        float(_std(torch.tensor(target_square - target_mean**2))),
        cells.mean(dim=0).float(),
        _std(cells.var(dim=0, unbiased=False)),
    )


def _std(variance: torch.Tensor) -> torch.Tensor:
    """Standard deviation; 1 for what never varies, so that nothing is divided by zero."""
    std = variance.clamp(min=0.0).sqrt()
    return torch.where(std > 1e-6, std, torch.ones_like(std)).float()
