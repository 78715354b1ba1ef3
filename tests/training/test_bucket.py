"""The synthetic catchment keeps its water, and is the same wherever and however it is made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign.errors import BadInput
from tests.needs import needs

pytestmark = needs("torch", "zarr")


def rows(start: int = 0, stop: int = 3, **changes: int) -> dict[str, Any]:
    from training.data.bucket import BucketSource

    return BucketSource(**({"cells": 7, "years": 6, "seed": 3} | changes)).rows(start, stop)


def test_the_water_balance_closes() -> None:
    """P = evaporation + runoff + what the stores have gained, month by month; values are stored as float32."""
    values = {name: array.astype(np.float64) for name, array in rows().items()}
    soil = np.concatenate([values["initial_soil_moisture"][None, None], values["soil_moisture"]], axis=1)
    snow = np.concatenate([np.zeros_like(soil[:, :1]), values["snow"]], axis=1)
    gained = np.diff(soil, axis=1) + np.diff(snow, axis=1)
    lost = values["evaporation"] + values["runoff"] + gained - values["precipitation"]
    inside = np.isfinite(lost)
    assert inside.sum() == 7 * 72
    assert np.abs(lost[inside]).max() < 1e-3
    assert values["precipitation"][inside].sum() > 1000  # there is water to keep
    assert values["snow"][inside].max() > 0
    assert values["runoff"][inside].max() > 0


def test_stores_and_fluxes_stay_in_their_bounds() -> None:
    values = rows()
    capacity = values["capacity"]
    for name in ("precipitation", "potential_evaporation", "evaporation", "runoff", "soil_moisture", "snow"):
        assert np.nanmin(values[name]) >= 0, name
    assert np.nanmax(values["soil_moisture"] - capacity) <= 0
    assert np.nanmax(values["evaporation"] - values["potential_evaporation"]) <= 1e-3


def test_cells_beyond_the_number_are_missing() -> None:
    values = rows()
    assert all(np.isnan(array[..., 2, 1:]).all() and np.isfinite(array[..., 2, 0]).all() for array in values.values())


def test_blocks_change_nothing() -> None:
    whole = rows()
    for start in range(3):
        for name, array in rows(start, start + 1).items():
            np.testing.assert_array_equal(array[..., 0, :], whole[name][..., start, :])


def test_the_seed_changes_everything() -> None:
    one, other = rows(), rows(seed=4)
    assert not any(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("wrong", [{"cells": 0}, {"years": 1}, {"seed": -1}])
def test_sizes(wrong: dict[str, int]) -> None:
    with pytest.raises(BadInput, match="too small") as error:
        rows(**wrong)
    assert error.value.problems[0].key == f"--{next(iter(wrong))}"


@given(
    soil=st.floats(0, 1),
    snow=st.floats(0, 200),
    precipitation=st.floats(0, 100),
    potential=st.floats(0, 10),
    temperature=st.floats(-30, 40),
    capacity=st.floats(50, 500),
    drainage=st.floats(0, 0.05),
)
def test_one_day_by_hand(
    soil: float,
    snow: float,
    precipitation: float,
    potential: float,
    temperature: float,
    capacity: float,
    drainage: float,
) -> None:
    """The equations of the module's docstring, in plain Python, for one cell."""
    from training.data.bucket import bucket_day

    soil *= capacity
    cell = [np.array([x]) for x in (soil, snow, precipitation, potential, temperature, capacity, drainage)]
    after = [float(x[0]) for x in bucket_day(*cell)]

    rain = precipitation if temperature >= 0 else 0.0
    pack = snow + precipitation - rain
    melt = min(pack, 3.0 * temperature) if temperature > 0 else 0.0
    water = soil + rain + melt
    evaporation = min(water, potential * min(1.0, water / (0.75 * capacity)))
    water -= evaporation
    runoff = (water - capacity if water > capacity else 0.0) + drainage * water
    assert after == pytest.approx([water - runoff, pack - melt, evaporation, runoff], abs=1e-9)
    stored = after[0] - soil + after[1] - snow
    assert stored + evaporation + runoff == pytest.approx(precipitation, abs=1e-9)
