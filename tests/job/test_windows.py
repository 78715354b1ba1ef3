"""Windows and epochs against NumPy."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaign.job.collect import Collector
from campaign.job.epochs import EpochTable, combine
from campaign.job.rankfile import StepRecord
from campaign.job.windows import RankSteps, RankWindow, WindowTable, percentile
from campaign.record import STEP_TAG, Recorder
from campaign.tables import STEP_PARTS, WINDOWS
from tests.job.jobs import Site


def step(epoch: int, number: int, parts: Any) -> StepRecord:
    return (STEP_TAG, epoch, number, 0, 1, *(float(part) for part in parts), 0.0)


@settings(deadline=None)
@given(
    st.integers(1, 5), st.integers(1, 7), st.lists(st.integers(0, 23), min_size=1, max_size=3), st.integers(0, 2**31)
)
def test_windows_are_what_numpy_says(ranks: int, window_steps: int, epochs: list[int], seed: int) -> None:
    generator = np.random.default_rng(seed)
    table = WindowTable(ranks)
    expected: dict[tuple[int, int, str], np.ndarray[Any, Any]] = {}
    rows = []
    for epoch, steps in enumerate(epochs):
        values = generator.uniform(0, 1, (ranks, steps, len(STEP_PARTS)))
        values[generator.uniform(size=values.shape) < 0.1] = np.nan
        values[:, :, 3] = np.nan
        for first in range(0, steps, window_steps):
            for part, metric in enumerate(STEP_PARTS):
                block = values[:, first : first + window_steps, part]
                counts = (~np.isnan(block)).sum(axis=1)
                means = np.where(counts > 0, np.nansum(block, axis=1) / np.maximum(counts, 1), np.nan)
                expected[epoch, first // window_steps, metric] = means
        for rank in range(ranks):
            gathered = RankSteps(window_steps)
            windows = [window for at in range(steps) for window in gathered.add(step(epoch, at, values[rank, at]))]
            assert gathered.last_step == steps - 1
            sums = gathered.epoch_sums(epoch)
            assert sums[1] == pytest.approx(_sum(values[rank, :, STEP_PARTS.index("comm_exposed_s")]))
            for window in windows + gathered.close():
                rows += table.add(rank, window)
    rows += table.finish()
    found = {(row[0], row[1], row[2]): dict(zip([c.name for c in WINDOWS], row, strict=True)) for row in rows}
    assert len(found) == len(rows)
    assert set(found) == {key for key, means in expected.items() if not np.isnan(means).all()}
    for key, row in found.items():
        means = expected[key]
        assert row["n"] == (~np.isnan(means)).sum()
        assert row["min"] == pytest.approx(np.nanmin(means))
        assert row["max"] == pytest.approx(np.nanmax(means))
        assert means[row["min_rank"]] == pytest.approx(np.nanmin(means))
        assert means[row["max_rank"]] == pytest.approx(np.nanmax(means))
        assert row["median"] == pytest.approx(np.nanmedian(means))
        assert row["p99"] == pytest.approx(np.nanpercentile(means, 99))


def _sum(values: Any) -> float | None:
    return None if np.isnan(values).all() else float(np.nansum(values))


@settings(deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.floats(0, 1))
def test_percentile_is_numpys(values: list[float], fraction: float) -> None:
    assert percentile(sorted(values), fraction) == pytest.approx(np.percentile(values, fraction * 100), abs=1e-6)


def window(epoch: int, number: int, value: float = 1.0) -> RankWindow:
    return RankWindow(epoch, number, (value,) * len(STEP_PARTS))


def test_a_rank_that_lags_does_not_grow_the_heads_memory() -> None:
    table = WindowTable(ranks=2, max_open=4)
    rows = [row for number in range(50) for row in table.add(0, window(0, number))]
    assert {row[1] for row in rows} == set(range(46))
    assert all(row[4] == 1 for row in rows)
    assert table.add(1, window(0, 3)) == []
    assert table.late == 1
    assert {row[4] for row in table.add(1, window(0, 49))} == {2}


def test_an_epoch_is_written_once_when_all_ranks_have_closed_it() -> None:
    table = EpochTable(ranks=2)
    report = {"epoch_time_s": 1.0, "steps": 5, "samples_seen": 10}
    assert table.add(0, 0, report, whole=True) == []
    assert table.add(1, 0, {"loss": 0.5}, whole=False) == []
    (row,) = table.add(1, 0, report | {"epoch_time_s": 2.0}, whole=True)
    assert (row["epoch_time_s"], row["epoch_time_min_s"], row["slowest_rank"]) == (2.0, 1.0, 1)
    assert (row["samples_seen"], row["samples_unique"], row["duplication"], row["loss"]) == (20, None, None, 0.5)
    assert table.add(1, 0, report, whole=True) == []
    assert table.late == 1
    assert table.finish() == []


@settings(deadline=None)
@given(st.lists(st.floats(0.001, 1e4), min_size=1, max_size=20))
def test_an_epochs_time_is_the_slowest_ranks(times: list[float]) -> None:
    reports = {
        rank: {"epoch_time_s": time, "data_wait_s": time / 2, "samples_seen": 3, "samples_unique": 4, "loss": time}
        for rank, time in enumerate(times)
    }
    row = combine(0, reports)
    assert row["epoch_time_s"] == max(times)
    assert row["slowest_rank"] == int(np.argmax(times))
    assert row["data_wait_s"] == max(times) / 2
    assert row["samples_seen"] == 3 * len(times)
    assert row["samples_unique"] == 4
    assert row["loss"] == pytest.approx(float(np.mean(times)))
    assert math.isclose(row["duplication"], 3 * len(times) / 4)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=5), st.integers(1, 4), st.booleans()
)
def test_windows_do_not_depend_on_when_a_ranks_file_is_read(
    tmp_path_factory: pytest.TempPathFactory, epochs: list[tuple[int, int]], window_steps: int, often: bool
) -> None:
    """Steps and epochs come at once or one by one, and an epoch may go on after it was closed."""
    folder = tmp_path_factory.mktemp("ranks")
    spec = Site(tmp_path_factory.mktemp("site")).spec(["true"], record={"window_steps": window_steps})
    collector = Collector(spec, folder, range(1), {})
    number, expected = 0, []
    windows_of: Counter[int] = Counter()
    with Recorder(folder / "0.bin") as recorder:
        for epoch, steps in epochs:
            values = [float(number + at) for at in range(steps)]
            for value in values:
                recorder.step(epoch, number, step_s=value)
                number += 1
                if often:
                    recorder.flush()
                    collector.look(0)
            recorder.epoch(epoch, epoch_time_s=1, steps=steps, samples_seen=steps)
            for first in range(0, steps, window_steps):
                expected.append((epoch, windows_of[epoch], float(np.mean(values[first : first + window_steps]))))
                windows_of[epoch] += 1
    while collector.look(0):
        pass
    collector.close(0)
    message = collector.message(0)
    assert message is not None
    found = [(epoch, window, means[-1]) for _, epoch, window, means in message["windows"]]
    assert found == [(epoch, window, pytest.approx(mean)) for epoch, window, mean in expected]
    assert [epoch for _, epoch, _ in message["epochs"]] == [epoch for epoch, _ in epochs]
