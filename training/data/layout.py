"""What a prepared data set looks like on disk, for those who write it and those who read it.

    <data set>/dataset.json    what it is: name, options, digest, sizes, source, licence (plain JSON: plans read it)
    <data set>/data.zarr/      Zarr v3 group
        <dynamic variable>     float32 [scenario, time, lat, lon], NaN where the source has no value
        <static variable>      float32 [lat, lon]
        year, step_of_year     int32 [time]; time steps are in order
        latitude, longitude    float64 [lat], [lon], degrees

The digest is SHA-256 over names, shapes, coordinates, units and the values themselves (little-endian, row by row of
`lat`), not over compressed bytes: it is the same on every machine and for every chunking and codec.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaign.errors import BadInput, Problem

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SCHEMA = 1
DATASET_FILE = "dataset.json"
ZARR_FOLDER = "data.zarr"


@dataclass(frozen=True, slots=True)
class Variable:
    """One stored array. `static` ones lack the dimensions scenario and time."""

    name: str
    units: str
    long_name: str
    static: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be learnt from the arrays: part of the data set, because it decides what a fair split is."""

    inputs: tuple[str, ...]
    """Dynamic variables that the model sees over its window."""
    target: str
    """Dynamic variable to predict."""
    static: tuple[str, ...]
    """Static variables that the model sees."""
    lead: int
    """Time steps between the window's last step and the target's: 1 forecasts, 0 maps forcing to state."""
    subtract_window_mean: bool
    """Take the mean of the target variable over the window from input and target (needs target among the inputs)."""
    static_years: tuple[int, int] | None
    """First and last year that static variables were computed from; None when they don't depend on time."""


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """`dataset.json`, read."""

    path: Path
    name: str
    options: dict[str, Any]
    digest: str
    task: Task
    scenarios: tuple[str, ...]
    raw: dict[str, Any]

    @property
    def zarr_path(self) -> Path:
        """Folder of the Zarr group."""
        return self.path / ZARR_FOLDER


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: one text for one value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def content_digest(header: dict[str, Any], row_hashes: dict[str, list[str]]) -> str:
    """SHA-256 (hex) of a data set: `header` and, per variable in order of name, the hash of each row of `lat`."""
    digest = hashlib.sha256(canonical_json(header).encode())
    for name in sorted(row_hashes):
        digest.update(f"\n{name}:".encode())
        for row in row_hashes[name]:
            digest.update(row.encode())
    return digest.hexdigest()


def row_hash(values: npt.NDArray[np.float32]) -> str:
    """SHA-256 (hex) of one row of `lat` of one variable, any leading dimensions; little-endian, C order.

    NaNs have many bit patterns; all of them count as one.
    """
    import numpy as np

    canonical = np.ascontiguousarray(values, dtype="<f4")
    missing = np.isnan(canonical)
    if missing.any():
        canonical = np.where(missing, np.float32(np.nan), canonical).astype("<f4")
    return hashlib.sha256(canonical.tobytes()).hexdigest()


def read_info(path: Path) -> DatasetInfo:
    """The description of the prepared data set in folder `path`. Raises BadInput with what to type when it is unfit."""
    file = path / DATASET_FILE
    prepare = f"campaign data prepare hydrology --dest {path}"
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        unfinished = partial_path(path).is_dir()
        message = "the data set is not fully prepared" if unfinished else "there is no prepared data set"
        raise BadInput(Problem(message, file=str(path), hint=prepare)) from None
    except (OSError, ValueError) as error:
        raise BadInput(Problem(f"can't be read: {error}", file=str(file), hint=f"{prepare} --force")) from None
    schema = raw.get("schema") if isinstance(raw, dict) else None
    if schema != SCHEMA:
        raise BadInput(
            Problem("unknown version of the data set", file=str(file), key="schema", value=schema, allowed=str(SCHEMA))
        )
    try:
        task = dict(raw["task"])
        for key in ("inputs", "static"):
            task[key] = tuple(task[key])
        task["static_years"] = tuple(task["static_years"]) if task["static_years"] else None
        info = DatasetInfo(path, raw["name"], raw["options"], raw["digest"], Task(**task), tuple(raw["scenarios"]), raw)
    except (KeyError, TypeError) as error:
        raise BadInput(Problem(f"damaged: {error!r}", file=str(file), hint=f"{prepare} --force")) from None
    if not info.zarr_path.is_dir():
        raise BadInput(Problem(f"lacks {ZARR_FOLDER}/", file=str(path), hint=f"{prepare} --force"))
    return info


def partial_path(path: Path) -> Path:
    """Where the data set for `path` is while it is being prepared."""
    return path.with_name(path.name + ".partial")
