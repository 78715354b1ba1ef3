"""A synthetic catchment of any size: weather drives a soil-moisture bucket with snow, cell by cell.

Each day, for water stores in mm (Manabe 1969, doi:10.1175/1520-0493(1969)097<0739:CATOC>2.3.CO;2, with a degree-day
snow pack as in HBV, Bergstroem 1976):

    snowfall  = P                      where T < 0 degC, else 0;  rain = P - snowfall
    melt      = min(snow, ddf * max(T, 0))
    evaporation = min(soil, PET * min(1, soil / (0.75 * capacity)))
    runoff    = max(0, soil - capacity) + k * soil     after rain, melt and evaporation

so that P = evaporation + runoff + change of soil + change of snow. Months of 30 days are stored: sums of the fluxes,
mean temperature, and the stores at the month's end.

Only + - * / min, max and comparisons of IEEE doubles are used, and sums are taken in a fixed order, so that every
machine makes the same bits. Every row of cells has its own random stream: the values don't depend on blocks or resumes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from campaign.errors import BadInput, Problem
from training.data.layout import Task, Variable

GENERATOR_VERSION = 1
DAYS_PER_MONTH, MONTHS_PER_YEAR = 30, 12
DAYS_PER_YEAR = DAYS_PER_MONTH * MONTHS_PER_YEAR
FIRST_YEAR = 2001
WET_FRACTION_OF_CAPACITY = 0.75
DEGREE_DAY_MM = 3.0
"""Melt per day and degree above zero, mm."""

Array = npt.NDArray[np.float64]


class BucketSource:
    """Monthly forcing and water stores, [scenario=1, time, lat, lon]; cells beyond `cells` are NaN."""

    name = "hydrology_synthetic"
    scenarios: tuple[str, ...] = ("synthetic",)
    variables: tuple[Variable, ...] = (
        Variable("precipitation", "mm/month", "precipitation, rain and snow"),
        Variable("potential_evaporation", "mm/month", "potential evaporation"),
        Variable("temperature", "degC", "monthly mean air temperature"),
        Variable("evaporation", "mm/month", "actual evaporation"),
        Variable("runoff", "mm/month", "runoff and drainage"),
        Variable("soil_moisture", "mm", "water in the soil bucket at the end of the month"),
        Variable("snow", "mm", "water in the snow pack at the end of the month"),
        Variable("capacity", "mm", "size of the soil bucket", static=True),
        Variable("drainage", "1/day", "share of the soil water that drains in a day", static=True),
        Variable("initial_soil_moisture", "mm", "water in the soil bucket before the first day", static=True),
    )
    task = Task(
        inputs=("precipitation", "potential_evaporation", "temperature"),
        target="soil_moisture",
        static=("capacity", "drainage"),
        lead=0,
        subtract_window_mean=False,
        static_years=None,
    )

    def __init__(self, *, cells: int, years: int, seed: int) -> None:
        """`cells` grid cells over `years` years of 12 months. Raises BadInput for sizes below 1 cell or 2 years."""
        for key, value, least in (("--cells", cells, 1), ("--years", years, 2), ("--seed", seed, 0)):
            if value < least:
                raise BadInput(Problem("too small", key=key, value=value, allowed=f"at least {least}"))
        self.cells, self.years, self.seed = cells, years, seed
        columns = 1
        while columns * columns < cells:
            columns += 1
        lines = -(-cells // columns)
        self.latitude = 30.0 + 40.0 * np.arange(lines) / max(lines - 1, 1)
        self.longitude = np.arange(columns, dtype=np.float64)
        months = np.arange(years * MONTHS_PER_YEAR, dtype=np.int32)
        self.year = (FIRST_YEAR + months // MONTHS_PER_YEAR).astype(np.int32)
        self.step_of_year = (months % MONTHS_PER_YEAR).astype(np.int32)
        self.options: dict[str, Any] = {"synthetic": True, "cells": cells, "years": years, "seed": seed}
        self.provenance = {
            "source": f"campaign's bucket model, generator {GENERATOR_VERSION}",
            "licence": "Apache-2.0",
            "calendar": "360_day",
        }

    def rows(self, start: int, stop: int) -> dict[str, npt.NDArray[np.float32]]:
        """Every variable for rows start..stop of `lat`: static [lat, lon], dynamic [1, time, lat, lon]."""
        lines = range(start, stop)
        streams = [np.random.Generator(np.random.PCG64(np.random.SeedSequence([self.seed, line]))) for line in lines]
        columns = len(self.longitude)
        cell = {name: np.empty((len(lines), columns)) for name in ("capacity", "drainage", "wetness", "storm")}
        for row, stream in enumerate(streams):
            for name, (low, width) in _CELL_RANGES.items():
                cell[name][row] = low + width * stream.random(columns)
        cell["latitude"] = np.repeat(self.latitude[start:stop, None], columns, axis=1)
        cell["initial_soil_moisture"] = 0.5 * cell["capacity"]
        out = self._simulate(streams, cell)
        missing = np.arange(start * columns, stop * columns).reshape(-1, columns) >= self.cells
        for values in out.values():
            values[..., missing] = np.nan
        return out

    def _simulate(
        self, streams: list[np.random.Generator], cell: dict[str, Array]
    ) -> dict[str, npt.NDArray[np.float32]]:
        shape = cell["capacity"].shape
        dynamic = [variable.name for variable in self.variables if not variable.static]
        out = {name: np.empty((1, len(self.year), *shape), dtype=np.float32) for name in dynamic}
        out |= {v.name: cell[v.name].astype(np.float32) for v in self.variables if v.static}
        soil, snow = cell["initial_soil_moisture"], np.zeros(shape)
        weather = _Weather(shape)
        for year in range(self.years):
            draws = np.stack([stream.random((3, DAYS_PER_YEAR, shape[1])) for stream in streams], axis=2)
            weather.new_year(np.stack([stream.random(shape[1]) for stream in streams]))
            for month in range(MONTHS_PER_YEAR):
                sums = {name: np.zeros(shape) for name in dynamic[:5]}
                for day in range(month * DAYS_PER_MONTH, (month + 1) * DAYS_PER_MONTH):
                    precipitation, potential, temperature = weather.day(day, draws[:, day], cell)
                    soil, snow, evaporation, runoff = bucket_day(
                        soil, snow, precipitation, potential, temperature, cell["capacity"], cell["drainage"]
                    )
                    for name, value in zip(
                        dynamic[:5], (precipitation, potential, temperature, evaporation, runoff), strict=True
                    ):
                        sums[name] += value
                sums["temperature"] /= DAYS_PER_MONTH
                for name, values in (*sums.items(), ("soil_moisture", soil), ("snow", snow)):
                    out[name][0, year * MONTHS_PER_YEAR + month] = values
        return out


_CELL_RANGES = {"capacity": (100.0, 300.0), "drainage": (0.002, 0.01), "wetness": (0.1, 0.2), "storm": (3.0, 9.0)}
"""Lowest value and width of the uniform distribution of each property of a cell."""


class _Weather:
    """A daily weather generator for cells of shape [lat, lon]: what yesterday left, and this year's wetness."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.wet = np.zeros(shape, dtype=bool)
        self.swing, self.level = np.zeros(shape), np.zeros(shape)

    def new_year(self, draw: Array) -> None:
        """Wet and dry years follow an autoregressive process; `draw` is uniform in [0, 1)."""
        self.level = 0.7 * self.level + 0.6 * (draw - 0.5)

    def day(self, day: int, draws: Array, cell: dict[str, Array]) -> tuple[Array, Array, Array]:
        """Precipitation mm, potential evaporation mm and temperature degC of a day; `draws` uniform, [3, lat, lon]."""
        self.swing = 0.8 * self.swing + 6.0 * (draws[0] - 0.5)
        latitude = cell["latitude"]
        temperature = 27.0 - 0.4 * latitude + (4.0 + 0.2 * latitude) * _season(day) + self.swing
        # a two-state Markov chain of wet days; the amount on a wet day is skewed (4 u^3 has mean 1)
        self.wet = draws[1] < np.where(self.wet, 0.6, cell["wetness"] * (1.0 + self.level))
        u = draws[2]
        precipitation = np.where(self.wet, cell["storm"] * (4.0 * u * u * u), 0.0)
        return precipitation, np.maximum(0.0, 0.18 * (temperature + 5.0)), temperature


def bucket_day(
    soil: Array,
    snow: Array,
    precipitation: Array,
    potential: Array,
    temperature: Array,
    capacity: Array,
    drainage: Array,
) -> tuple[Array, Array, Array, Array]:
    """One day of the model for any number of cells; mm, mm/day, degC. Returns soil, snow, evaporation, runoff."""
    snowfall = np.where(temperature < 0.0, precipitation, 0.0)
    snow = snow + snowfall
    melt = np.minimum(snow, DEGREE_DAY_MM * np.maximum(temperature, 0.0))
    snow = snow - melt
    soil = soil + (precipitation - snowfall) + melt
    stress = np.minimum(1.0, soil / (WET_FRACTION_OF_CAPACITY * capacity))
    evaporation = np.minimum(soil, potential * stress)
    soil = soil - evaporation
    runoff = np.maximum(0.0, soil - capacity) + drainage * soil
    return soil - runoff, snow, evaporation, runoff


def _season(day: int) -> float:
    """-1 in midwinter to 1 in midsummer: a sine of rational operations (Bhaskara I), the same bits everywhere."""
    angle = (day + DAYS_PER_YEAR - 90) % DAYS_PER_YEAR
    half = DAYS_PER_YEAR // 2
    x = angle % half
    sine = 4.0 * x * (half - x) / (40500.0 * half * half / 32400.0 - x * (half - x))
    return sine if angle < half else -sine
