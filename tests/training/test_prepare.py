"""Making data sets: what is in them, doing it once, going on after an interruption, saying what is wrong."""

from __future__ import annotations

import fcntl
import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from campaign.errors import BadInput, NotNow
from tests.conftest import Cli, campaign_command
from tests.needs import needs
from tests.waiting import wait_for

pytestmark = needs("torch", "zarr", "netCDF4")

CLIMATE_DIGEST = "8b471833103e9986935c000b4183f456797914a6bb99859b87abf714acb839dc"
BUCKET_DIGEST = "e94f6ec88a6c"


def bucket_source(**changes: int) -> Any:
    from training.data.bucket import BucketSource

    return BucketSource(**({"cells": 7, "years": 8, "seed": 3} | changes))


class Counted:
    """A source that notes which rows were asked for, and may stop like Ctrl-C does."""

    def __init__(self, source: Any, stop_at: int | None = None) -> None:
        self._source, self._stop_at = source, stop_at
        self.asked: list[tuple[int, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def rows(self, start: int, stop: int) -> Any:
        if start == self._stop_at:
            raise KeyboardInterrupt
        self.asked.append((start, stop))
        return self._source.rows(start, stop)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def files(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(file.relative_to(folder)): (file.stat().st_mtime_ns, file.stat().st_ino)
        for file in folder.rglob("*")
        if file.is_file()
    }


@needs("h5py")
def test_the_climate_set_holds_what_the_files_hold(climate: Path) -> None:
    """Read by another library than the one that made it: HDF5 directly, no CF conventions."""
    import h5py
    import iris_sample_data
    import numpy as np
    import zarr

    group = zarr.open_group(climate / "data.zarr", mode="r")
    stored = np.asarray(group["temperature"][...])
    assert stored.shape == (2, 240, 37, 49)
    assert stored.dtype == np.float32
    assert group["temperature"].attrs["units"] == "K"
    for number, file in enumerate(("A1B_north_america.nc", "E1_north_america.nc")):
        with h5py.File(Path(iris_sample_data.path) / file) as raw:
            np.testing.assert_array_equal(stored[number], raw["air_temperature"][...])
            np.testing.assert_array_equal(group["latitude"][...], raw["latitude"][...])
            # hours since 1970 in a calendar of 360 days: the middle of the averaging period
            middle = raw["time_bnds"][...].mean(axis=1)
            np.testing.assert_array_equal(group["year"][...], 1970 + np.floor(middle / 8640).astype(int))
    mean = np.asarray(group["reference_mean"][...])
    np.testing.assert_allclose(mean, stored[0, :40].astype(float).mean(axis=0), rtol=1e-6)
    np.testing.assert_array_equal(np.asarray(group["year"][:40]), np.arange(1860, 1900))
    for name, array in group.arrays():
        assert array.metadata.dimension_names, name


def test_description(climate: Path, bucket: Path) -> None:
    description = json.loads((climate / "dataset.json").read_text())
    assert description["digest"] == CLIMATE_DIGEST
    assert description["samples"] == 2 * 240 * 37 * 49
    assert description["years"] == [1860, 2099]
    assert "Open Government Licence" in description["licence"]
    assert "iris-sample-data" in description["source"]
    assert description["files"] == len(files(climate))
    assert json.loads((bucket / "dataset.json").read_text())["digest"].startswith(BUCKET_DIGEST)


def test_the_digest_follows_the_values_and_nothing_else(tmp_path: Path) -> None:
    from training.data.prepare import prepare

    def digest(name: str, *, block_bytes: int = 1 << 20, **changes: int) -> str:
        return prepare(bucket_source(**changes), tmp_path / name, block_bytes=block_bytes).info.digest

    one = digest("one")
    assert digest("rows", block_bytes=1) == one
    assert digest("seed", seed=4) != one
    assert digest("cells", cells=8) != one
    assert digest("years", years=9) != one


def test_a_flipped_value_is_found(tmp_path: Path, bucket: Path) -> None:
    import zarr

    from training.data.prepare import verify

    copy = tmp_path / "copy"
    shutil.copytree(bucket, copy)
    verify(copy)
    array = zarr.open_group(copy / "data.zarr", mode="r+")["snow"]
    array[0, 50, 1, 1] = 1e-3 + float(array[0, 50, 1, 1])
    with pytest.raises(BadInput, match="don't match the digest"):
        verify(copy)


def test_a_second_call_touches_nothing(tmp_path: Path) -> None:
    from training.data.prepare import prepare

    source = Counted(bucket_source())
    assert prepare(source, tmp_path / "set").state == "made"
    before = files(tmp_path / "set")
    assert names(tmp_path) == ["set"]
    source = Counted(bucket_source())
    assert prepare(source, tmp_path / "set").state == "nothing to do"
    assert source.asked == []
    assert files(tmp_path / "set") == before
    assert prepare(source, tmp_path / "set", force=True).state == "made"
    assert files(tmp_path / "set") != before
    assert names(tmp_path) == ["set"]


@pytest.fixture
def half(tmp_path: Path) -> Path:
    """A data set of three rows that was interrupted after two."""
    from training.data.prepare import prepare

    with pytest.raises(KeyboardInterrupt):
        prepare(Counted(bucket_source(), stop_at=2), tmp_path / "set", block_bytes=1)
    assert not (tmp_path / "set").exists()
    return tmp_path / "set"


def resume(path: Path) -> tuple[str, list[tuple[int, int]]]:
    from training.data.prepare import prepare, verify

    source = Counted(bucket_source())
    outcome = prepare(source, path, block_bytes=1)
    assert outcome.info.digest.startswith(BUCKET_DIGEST)
    verify(path)
    assert names(path.parent) == ["set"]
    return outcome.state, source.asked


def test_goes_on_after_an_interruption(half: Path) -> None:
    from training.data.layout import read_info

    with pytest.raises(BadInput, match="not fully prepared"):
        read_info(half)
    stray = half.with_name("set.partial") / "data.zarr" / "snow" / "c" / "x.0123.partial"
    stray.write_bytes(b"zarr's own temporary file")
    assert resume(half) == ("resumed", [(2, 3)])
    assert not list(half.rglob("*.partial"))


def test_a_cut_journal_costs_one_block(half: Path) -> None:
    journal = half.with_name("set.partial") / "journal.jsonl"
    journal.write_text(journal.read_text()[:-40])
    assert resume(half) == ("resumed", [(1, 2), (2, 3)])


def test_a_lost_chunk_costs_its_block(half: Path) -> None:
    """After a power cut the journal may know of values that never reached the disk."""
    chunk = half.with_name("set.partial") / "data.zarr" / "soil_moisture" / "c" / "0" / "0" / "1" / "0"
    chunk.unlink()
    assert resume(half) == ("resumed", [(1, 2), (2, 3)])


@pytest.mark.parametrize("remains", ["journal.jsonl", "data.zarr"])
def test_half_of_the_remains_is_no_start(half: Path, remains: str) -> None:
    partial = half.with_name("set.partial")
    for path in list(partial.iterdir()):
        if path.name == remains:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert resume(half) == ("made", [(0, 1), (1, 2), (2, 3)])


def test_remains_of_another_set_are_not_taken(half: Path) -> None:
    from training.data.prepare import prepare

    assert prepare(bucket_source(seed=4), half, block_bytes=1).state == "made"


def test_two_at_once(half: Path) -> None:
    from training.data.prepare import prepare

    with (half.with_name("set.partial") / "lock").open("a+") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(NotNow, match="another process"):
            prepare(bucket_source(), half)
    assert resume(half)[0] == "resumed"


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    from training.data.prepare import prepare

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(BadInput, match="no data set of campaign"):
        prepare(bucket_source(), tmp_path / "mine")
    with pytest.raises(BadInput, match="no data set of campaign"):
        prepare(bucket_source(), tmp_path / "mine", force=True)
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "x"
    (tmp_path / "empty").mkdir()
    assert prepare(bucket_source(), tmp_path / "empty").state == "made"
    with pytest.raises(BadInput, match="with options"):
        prepare(bucket_source(seed=4), tmp_path / "empty")


def test_missing_and_wrong_values_in_the_source(tmp_path: Path) -> None:
    """Small files as CF writes them: packed values with a fill value; then units that nobody asked for."""
    import netCDF4
    import numpy as np

    from training.data.climate import FILES, ClimateSource
    from training.data.layout import read_info
    from training.data.prepare import prepare
    from training.samples import load

    rng = np.random.default_rng(0)
    values = 280 + np.round(rng.normal(size=(60, 2, 3)), 2)
    for file in FILES.values():
        with netCDF4.Dataset(tmp_path / file, "w") as data:
            for name, size in (("time", 60), ("latitude", 2), ("longitude", 3), ("bnds", 2)):
                data.createDimension(name, size)
            time = data.createVariable("time", "f8", ("time",))
            time.units, time.calendar = "hours since 1970-01-01 00:00:00", "360_day"
            bounds = data.createVariable("time_bnds", "f8", ("time", "bnds"))
            start = 8640 * (np.arange(60) - 100) - 720
            bounds[:] = np.stack([start, start + 8640], axis=1)
            time[:] = start + 4320
            for name, units in (("latitude", "degrees_north"), ("longitude", "degrees_east")):
                data.createVariable(name, "f4", (name,)).units = units
                data[name][:] = np.arange(len(data.dimensions[name]))
            packed = data.createVariable("air_temperature", "i2", ("time", "latitude", "longitude"), fill_value=-32768)
            packed.units, packed.scale_factor, packed.add_offset = "K", 0.01, 280.0
            packed[:] = np.ma.masked_array(values, mask=np.zeros(values.shape, bool))
            packed[30, 1, 2] = np.ma.masked
    path = prepare(ClimateSource(tmp_path), tmp_path / "set").info.path
    series = load(read_info(path))
    assert series.target.shape == (2 * 5, 60)  # the cell with a missing year is left out
    np.testing.assert_allclose(series.target[:5], values.reshape(60, 6).T[:5], atol=0.006)
    assert series.year[0] == 1870

    with netCDF4.Dataset(tmp_path / FILES["E1"], "a") as data:
        data["air_temperature"].units = "degC"
    with pytest.raises(BadInput, match="units") as error:
        ClimateSource(tmp_path)
    assert error.value.problems[0].value == "degC"
    (tmp_path / FILES["A1B"]).write_bytes(b"not netCDF")
    with pytest.raises(BadInput, match="can't be read"):
        ClimateSource(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "can't be read"),
        ("[]", "unknown version"),
        ('{"schema": 2}', "unknown version"),
        ('{"schema": 1, "name": "hydrology"}', "damaged"),
    ],
)
def test_a_bad_description(tmp_path: Path, text: str, message: str) -> None:
    from training.data.layout import read_info

    (tmp_path / "dataset.json").write_text(text)
    with pytest.raises(BadInput, match=message):
        read_info(tmp_path)


def test_a_store_that_lacks_an_array(tmp_path: Path, bucket: Path) -> None:
    from training.data.layout import read_info
    from training.samples import load

    shutil.copytree(bucket, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "data.zarr" / "soil_moisture")
    with pytest.raises(BadInput, match="damaged"):
        load(read_info(tmp_path / "copy"))
    shutil.rmtree(tmp_path / "copy" / "data.zarr")
    with pytest.raises(BadInput, match=r"lacks data\.zarr"):
        read_info(tmp_path / "copy")


def test_ctrl_c_and_again(tmp_path: Path, cli: Cli) -> None:
    """The real command, interrupted by a signal in the middle of its work."""
    dest = tmp_path / "set"
    words = ["data", "prepare", "hydrology", "--synthetic", "--cells", "90000", "--years", "2", "--dest", str(dest)]
    running = subprocess.Popen(
        [campaign_command(), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    journal = tmp_path / "set.partial" / "journal.jsonl"
    wait_for(lambda: journal.exists() and journal.read_text().count("\n") >= 2, what="a finished block")
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=120)
    assert running.returncode == 130, err
    assert "repeat" in err
    assert not dest.exists()
    answer = cli(*words, "--json", code=0).json()["data"]
    assert answer["state"] == "resumed"
    assert answer["path"] == str(dest)
    again = cli(*words, code=0)
    assert again.stdout.startswith("nothing to do")
    assert cli(*words, "--verify", code=0).stdout.startswith("verified")


def test_where_it_goes(tmp_path: Path, cli: Cli) -> None:
    small = ("data", "prepare", "hydrology", "--synthetic", "--cells", "4", "--years", "2")
    outside = cli(*small, cwd=tmp_path, code=2)
    assert "--dest" in outside.stderr
    (tmp_path / "project" / "sites").mkdir(parents=True)
    cli(*small, cwd=tmp_path / "project", code=0)
    assert (tmp_path / "project" / "data" / "hydrology_synthetic" / "dataset.json").exists()
    cli(*small, cwd=tmp_path, env={"CAMPAIGN_DATA": str(tmp_path / "big")}, code=0)
    assert (tmp_path / "big" / "hydrology_synthetic" / "dataset.json").exists()
    both = cli(*small, "--dest", "x", "--site", "local", cwd=tmp_path, code=2)
    assert "not both" in both.stderr
