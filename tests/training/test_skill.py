"""A short real training is better than persistence; the whole table is `python -m training.evaluate hydrology`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.needs import needs

pytestmark = needs("torch", "zarr", "netCDF4")


def test_beats_persistence_in_seconds(climate: Path) -> None:
    from training.data.layout import read_info
    from training.evaluate import evaluate, table
    from training.settings import parse

    info = read_info(climate)
    chosen = parse({"global_batch": 256, "fraction": 0.01, "epochs": 1, "hidden": 32})
    skill = evaluate(info, chosen, [1], quiet=True)
    named = {comparison.name: comparison for comparison in skill.comparisons}
    assert named["persistence"].difference < -0.1
    assert named["persistence"].high < 0
    assert named["mean of 10 steps"].difference < 0
    assert skill.years == (2070, 2099)
    assert skill.samples == 2 * 30 * 37 * 49
    assert 0.6 < skill.seeds[1] < 0.75
    text = table(info, skill)
    for name in ("LSTM", *named):
        assert name in text


def test_a_model_that_is_no_better_is_told(bucket: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One step of training can't beat a linear fit: the command says so by its exit code, and prints the table."""
    from training.evaluate import main

    params = '{"epochs": 1, "fraction": 1.0, "lr": 1e-6, "global_batch": 64, "hidden": 4, "window": 6}'
    assert main(["hydrology", "--data", str(bucket), "--seeds", "1", "--params", params]) == 1
    printed = capsys.readouterr()
    assert "| least squares |" in printed.out
    assert "seed 1: test RMSE" in printed.err


def test_wrong_parameters_of_the_evaluation(bucket: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from training.evaluate import main

    assert main(["hydrology", "--data", str(bucket), "--params", '{"hiden": 4}']) == 2
    assert "unknown parameter" in capsys.readouterr().err
