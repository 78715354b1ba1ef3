"""The climate-model output that PyPI's `iris-sample-data` carries, as a source for a data set.

Air temperature at 1.5 m over North America from the Met Office Unified Model 6.05, two emission scenarios (A1B and
E1), yearly means (meteorological years, December to November, 360-day calendar) for 1860 to 2099 on 37 x 49 cells of
1.25 x 1.875 degrees. The two scenarios are one and the same run up to and including 1999.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from campaign.errors import BadInput, Problem
from training.data.layout import Task, Variable

FILES = {"A1B": "A1B_north_america.nc", "E1": "E1_north_america.nc"}
REFERENCE_YEARS = (1860, 1899)
LICENCE = "Open Government Licence v3.0, British Crown copyright, Met Office"


class ClimateSource:
    """Yearly mean air temperature, [scenario, time, lat, lon] in K, with static features of each cell.

    The files hold no land mask and no elevation, so the static features are what can be known of a cell before the
    years that are predicted: its place, and mean and year-to-year standard deviation of its temperature over the
    reference years (the mean follows elevation and latitude, the deviation tells land from sea).
    """

    name = "hydrology"
    scenarios: tuple[str, ...] = tuple(FILES)
    variables: tuple[Variable, ...] = (
        Variable("temperature", "K", "yearly mean air temperature"),
        Variable("cell_latitude", "degrees_north", "latitude of the cell", static=True),
        Variable("cell_longitude", "degrees_east", "longitude of the cell", static=True),
        Variable("reference_mean", "K", "mean temperature of the reference years", static=True),
        Variable("reference_std", "K", "standard deviation of yearly temperature, reference years", static=True),
    )
    task = Task(
        inputs=("temperature",),
        target="temperature",
        static=("cell_latitude", "cell_longitude", "reference_mean", "reference_std"),
        lead=1,
        subtract_window_mean=True,
        static_years=REFERENCE_YEARS,
    )

    def __init__(self, folder: Path | None = None) -> None:
        """Read the files. `folder`: where they are; None asks the package. Raises BadInput when they are unfit."""
        folder = sample_folder() if folder is None else folder
        read = {scenario: _read(folder / file) for scenario, file in FILES.items()}
        first = read[self.scenarios[0]]
        for scenario, other in read.items():
            for key in ("year", "latitude", "longitude"):
                if not np.array_equal(first[key], other[key]):
                    raise BadInput(Problem(f"{key} differs from {FILES[self.scenarios[0]]}", file=FILES[scenario]))
        self.temperature = np.stack([read[scenario]["temperature"] for scenario in self.scenarios])
        self.year = first["year"]
        self.step_of_year = np.zeros_like(self.year)
        self.latitude, self.longitude = first["latitude"], first["longitude"]
        self.options: dict[str, Any] = {}
        self.provenance = {
            "source": f"iris-sample-data {importlib.metadata.version('iris-sample-data')}: {', '.join(FILES.values())}",
            "licence": LICENCE,
            "calendar": "360_day; a year runs from December to November",
        }
        self._static = self._static_features()

    def _static_features(self) -> dict[str, npt.NDArray[np.float32]]:
        reference = (self.year >= REFERENCE_YEARS[0]) & (self.year <= REFERENCE_YEARS[1])
        # both scenarios are one run in those years
        temperature = self.temperature[0, reference].astype(np.float64)
        latitude, longitude = np.meshgrid(self.latitude, self.longitude, indexing="ij")
        features = {
            "cell_latitude": latitude,
            "cell_longitude": longitude,
            "reference_mean": temperature.mean(axis=0),
            "reference_std": temperature.std(axis=0),
        }
        return {name: values.astype(np.float32) for name, values in features.items()}

    def rows(self, start: int, stop: int) -> dict[str, npt.NDArray[np.float32]]:
        """Every variable for rows start..stop of `lat`."""
        block = {name: values[start:stop] for name, values in self._static.items()}
        block["temperature"] = self.temperature[:, :, start:stop]
        return block


def sample_folder() -> Path:
    """Folder of the sample files of the installed `iris-sample-data`."""
    try:
        import iris_sample_data
    except ImportError:
        raise BadInput(
            Problem("the package iris-sample-data is not installed", hint="pip install 'campaign[train]'")
        ) from None
    return Path(iris_sample_data.path)


def _read(file: Path) -> dict[str, npt.NDArray[Any]]:
    """Temperature [time, lat, lon] in K with NaN for missing values, and its coordinates."""
    try:
        import netCDF4
    except ImportError:
        raise BadInput(Problem("the package netCDF4 is not installed", hint="pip install 'campaign[train]'")) from None
    try:
        data = netCDF4.Dataset(file)
    except OSError as error:
        raise BadInput(
            Problem(f"can't be read: {error}", file=str(file), hint="pip install --force-reinstall iris-sample-data")
        ) from None
    with data:
        variable, time = data["air_temperature"], data["time"]
        for name, expected in (("air_temperature", "K"), ("latitude", "degrees_north"), ("longitude", "degrees_east")):
            if data[name].units != expected:
                raise BadInput(
                    Problem("unexpected units", file=str(file), key=name, value=data[name].units, allowed=expected)
                )
        # the middle of each averaging period tells the year: December belongs to the year that follows
        middle = netCDF4.num2date(data["time_bnds"][:].mean(axis=1), time.units, time.calendar)
        year = np.array([date.year for date in middle], dtype=np.int32)
        if not np.array_equal(np.diff(year), np.ones(len(year) - 1)):
            raise BadInput(Problem("years are not consecutive", file=str(file), key="time"))
        return {
            "temperature": np.ma.filled(variable[:].astype(np.float32), np.float32(np.nan)),
            "year": year,
            "latitude": np.asarray(data["latitude"][:], dtype=np.float64),
            "longitude": np.asarray(data["longitude"][:], dtype=np.float64),
        }
