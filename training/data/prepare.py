"""Make a data set: block by block into `<dest>.partial/`, journalled, then renamed to `<dest>/`.

Interrupted at any point, the same call goes on after the last finished block. A finished data set is never touched
again unless `force` is given; then it is replaced when the new one is complete.
"""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import zarr

from campaign.errors import BadInput, NotNow, Problem
from training.data.layout import (
    DATASET_FILE,
    SCHEMA,
    ZARR_FOLDER,
    DatasetInfo,
    Task,
    Variable,
    canonical_json,
    content_digest,
    partial_path,
    read_info,
    row_hash,
)

BLOCK_BYTES = 4 * 2**20
"""Size of a chunk of the largest variable: few files, and one block of work is short."""
JOURNAL = "journal.jsonl"
LOCK = "lock"


class Source(Protocol):
    """Where values come from. `rows` must give the same bits for a row however the rows are grouped."""

    name: str
    scenarios: tuple[str, ...]
    variables: tuple[Variable, ...]
    task: Task
    options: dict[str, Any]
    provenance: dict[str, str]
    year: npt.NDArray[np.int32]
    step_of_year: npt.NDArray[np.int32]
    latitude: npt.NDArray[np.float64]
    longitude: npt.NDArray[np.float64]

    def rows(self, start: int, stop: int) -> dict[str, npt.NDArray[np.float32]]:
        """Every variable for rows start..stop of `lat`."""


class Outcome(NamedTuple):
    """What `prepare` did."""

    state: Literal["made", "resumed", "nothing to do"]
    info: DatasetInfo


def prepare(
    source: Source,
    dest: Path,
    *,
    force: bool = False,
    block_bytes: int = BLOCK_BYTES,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Outcome:
    """Make the data set of `source` in folder `dest`; `progress(rows done, rows in all)` is called after each block.

    Raises BadInput when `dest` holds something else, NotNow when another process is preparing it.
    """
    if done := _existing(source, dest, force):
        return Outcome("nothing to do", done)
    partial = partial_path(dest)
    partial.mkdir(parents=True, exist_ok=True)
    with _locked(partial):
        if done := _existing(source, dest, force):  # somebody else has been faster
            shutil.rmtree(partial)
            return Outcome("nothing to do", done)
        hashes, first_row = _resume(source, partial)
        _fill(source, partial, hashes, first_row, block_bytes, progress)
        _describe(source, partial, hashes)
        if dest.exists():
            shutil.rmtree(dest)
        partial.rename(dest)  # lock and journal go along: until then nobody else may begin
        _sync_folder(dest.parent)
        for name in (JOURNAL, LOCK):
            (dest / name).unlink()
    return Outcome("resumed" if first_row else "made", read_info(dest))


def verify(dest: Path) -> DatasetInfo:
    """Read every value of the data set in `dest` and compare with its digest. Raises BadInput when they differ."""
    info = read_info(dest)
    group = zarr.open_group(info.zarr_path, mode="r")
    hashes: dict[str, list[str]] = {name: [] for name in info.raw["variables"]}
    lines, block = group[info.task.target].shape[-2], group[info.task.target].chunks[-2]
    for start in range(0, lines, block):
        found = _block_hashes(group, tuple(hashes), start, min(start + block, lines))
        for name, rows in found.items():
            hashes[name].extend(rows)
    header = {key: info.raw[key] for key in ("name", "scenarios", "variables", "task")}
    header |= {name: np.asarray(group[name][...]).tolist() for name in _COORDINATES}
    digest = content_digest(header, hashes)
    if digest != info.digest:
        raise BadInput(
            Problem(
                f"the values don't match the digest: {digest[:12]} found, {info.digest[:12]} noted",
                file=str(dest),
                hint=f"campaign data prepare hydrology --dest {dest} --force",
            )
        )
    return info


_COORDINATES = ("year", "step_of_year", "latitude", "longitude")


def _header(source: Source) -> dict[str, Any]:
    return {
        "name": source.name,
        "scenarios": list(source.scenarios),
        "variables": {
            v.name: {"units": v.units, "long_name": v.long_name, "static": v.static} for v in source.variables
        },
        "task": json.loads(json.dumps(asdict(source.task))),
    } | {name: getattr(source, name).tolist() for name in _COORDINATES}


def _existing(source: Source, dest: Path, force: bool) -> DatasetInfo | None:
    """The finished data set in `dest` if it is this one; None if there is nothing, or if it may be replaced."""
    if not dest.exists():
        return None
    if not (dest / DATASET_FILE).exists():
        if dest.is_dir() and not any(dest.iterdir()):
            dest.rmdir()
            return None
        raise BadInput(
            Problem("exists and is no data set of campaign", file=str(dest), hint="give another folder with --dest")
        )
    if force:
        return None
    info = read_info(dest)
    if (info.name, info.options) != (source.name, source.options):
        raise BadInput(
            Problem(
                f"holds the data set {info.name} with options {canonical_json(info.options)}",
                file=str(dest),
                key="options",
                value=canonical_json(source.options),
                hint="give another folder with --dest, or --force to replace it",
            )
        )
    return info


@contextmanager
def _locked(partial: Path) -> Iterator[None]:
    """Hold the folder's lock: two calls at once must not write the same chunks."""
    with (partial / LOCK).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NotNow(
                Problem(
                    "another process is preparing this data set", file=str(partial), hint="wait for it, then repeat"
                )
            ) from None
        yield


def _resume(source: Source, partial: Path) -> tuple[dict[str, list[str]], int]:
    """Row hashes of the blocks that are really there, and the first row to do.

    Starts anew if the journal isn't this data set's. A block counts when its values still have the hashes that were
    noted: after a power cut the journal may have outlived the values.
    """
    journal = partial / JOURNAL
    fingerprint = canonical_json({"schema": SCHEMA, "name": source.name, "options": source.options})
    hashes: dict[str, list[str]] = {variable.name: [] for variable in source.variables}
    lines = journal.read_text(encoding="utf-8").splitlines() if journal.exists() else []
    good = []
    if lines and lines[0] == fingerprint and (partial / ZARR_FOLDER / "zarr.json").exists():
        for line in lines[1:]:
            try:
                block = json.loads(line)
            except ValueError:
                break  # cut off in the middle of a write
            start = good[-1]["stop"] if good else 0
            try:
                group = zarr.open_group(partial / ZARR_FOLDER, mode="r")
                found = _block_hashes(group, tuple(hashes), start, block["stop"])
            except (OSError, KeyError, ValueError, RuntimeError):
                break  # what is there can't be read
            if found != block["hashes"]:
                break
            good.append(block)
    if not good:
        shutil.rmtree(partial / ZARR_FOLDER, ignore_errors=True)
    journal.write_text("\n".join([fingerprint, *map(canonical_json, good)]) + "\n", encoding="utf-8")
    for block in good:
        for name, rows in block["hashes"].items():
            hashes[name].extend(rows)
    return hashes, good[-1]["stop"] if good else 0


def _block_hashes(group: zarr.Group, names: tuple[str, ...], start: int, stop: int) -> dict[str, list[str]]:
    """Row hashes of rows start..stop as they are stored."""
    blocks = {name: np.asarray(group[name][..., start:stop, :]) for name in names}
    return {name: [row_hash(block[..., row, :]) for row in range(stop - start)] for name, block in blocks.items()}


def _fill(
    source: Source,
    partial: Path,
    hashes: dict[str, list[str]],
    first_row: int,
    block_bytes: int,
    progress: Callable[[int, int], None],
) -> None:
    """Write the rows from `first_row` on, one chunk of rows at a time, and note each finished block in the journal."""
    lines = len(source.latitude)
    row_bytes = len(source.scenarios) * len(source.year) * len(source.longitude) * 4
    block = max(1, min(lines, block_bytes // row_bytes))
    group = (
        zarr.open_group(partial / ZARR_FOLDER, mode="r+")
        if first_row
        else _create(source, partial / ZARR_FOLDER, block)
    )
    if first_row:
        block = group[source.task.target].chunks[-2]
    with (partial / JOURNAL).open("a", encoding="utf-8") as journal:
        for start in range(first_row, lines, block):
            stop = min(start + block, lines)
            values = source.rows(start, stop)
            noted = {}
            for name, array in values.items():
                group[name][..., start:stop, :] = array
                noted[name] = [row_hash(array[..., row, :]) for row in range(stop - start)]
                hashes[name].extend(noted[name])
            journal.write(canonical_json({"stop": stop, "hashes": noted}) + "\n")
            journal.flush()
            os.fsync(journal.fileno())
            progress(stop, lines)


def _create(source: Source, path: Path, block: int) -> zarr.Group:
    group = zarr.create_group(path, overwrite=True)
    group.update_attributes({"Conventions": "CF-1.8", "scenarios": list(source.scenarios), **source.provenance})
    lines, columns, steps = len(source.latitude), len(source.longitude), len(source.year)
    for name, dimension, units in (
        ("year", "time", "1"),
        ("step_of_year", "time", "1"),
        ("latitude", "lat", "degrees_north"),
        ("longitude", "lon", "degrees_east"),
    ):
        group.create_array(name, data=getattr(source, name), dimension_names=[dimension], attributes={"units": units})
    for variable in source.variables:
        lead = () if variable.static else (len(source.scenarios), steps)
        group.create_array(
            variable.name,
            shape=(*lead, lines, columns),
            chunks=(*lead, block, columns),
            dtype="float32",
            fill_value=float("nan"),
            dimension_names=[*(() if variable.static else ("scenario", "time")), "lat", "lon"],
            attributes={"units": variable.units, "long_name": variable.long_name},
        )
    return group


def _describe(source: Source, partial: Path, hashes: dict[str, list[str]]) -> None:
    """Write `dataset.json` (temporary name, fsync, rename)."""
    header = _header(source)
    for stray in (partial / ZARR_FOLDER).rglob("*.partial"):
        stray.unlink()  # zarr's temporary files of an interrupted call
    files = [file for file in (partial / ZARR_FOLDER).rglob("*") if file.is_file()]
    description = {
        "schema": SCHEMA,
        "name": source.name,
        "options": source.options,
        "digest": content_digest(header, hashes),
        "files": len(files) + 1,
        "bytes": sum(file.stat().st_size for file in files),
        "shape": {
            "scenario": len(source.scenarios),
            "time": len(source.year),
            "lat": len(source.latitude),
            "lon": len(source.longitude),
        },
        "samples": len(source.scenarios) * len(source.year) * len(source.latitude) * len(source.longitude),
        "years": [int(source.year[0]), int(source.year[-1])],
        "scenarios": header["scenarios"],
        "variables": header["variables"],
        "task": header["task"],
        **source.provenance,
        "zarr": zarr.__version__,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    temporary = partial / f"{DATASET_FILE}.tmp"
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(description, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(partial / DATASET_FILE)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
