"""The scaling table: numbers of the view, units in the head, spread only where there are repeats."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest
from rich.console import Console

from analysis.numbers import percent, significant, span, tick
from analysis.queries import scaling_rows
from analysis.tables import render_scaling_table, scaling_table
from tests.analysis.answers_store import Run, ladder, memory_store
from tests.analysis.shapes import many_strategies, two_sites


def text_of(runs: list[Run]) -> str:
    with memory_store(runs) as connection:
        rows = scaling_rows(connection)
    console = Console(width=160, highlight=False, no_color=True)
    with console.capture() as capture:
        console.print(render_scaling_table(rows))
    return capture.get()


def test_rows_are_the_view_in_its_order() -> None:
    with memory_store(two_sites()) as connection:
        table = scaling_table(scaling_rows(connection))
        expected = connection.execute(
            "SELECT site, study, strategy, world_size, n, n_excluded, epoch_time_s, throughput_per_s, speedup, "
            "efficiency FROM scaling ORDER BY site, study, series, world_size"
        ).fetchall()  # fmt: skip
    keys = ("site", "study", "strategy", "world_size", "n", "n_excluded", "epoch_time_s", "throughput_per_s", "speedup",
            "efficiency")  # fmt: skip
    assert [tuple(row[key] for key in keys) for row in table] == expected


def test_karp_flatt_by_hand() -> None:
    # 102, 52, 27 s on 4, 8, 16: speedup 102/52 at q = 2, 102/27 at q = 4
    with memory_store(ladder([4, 8, 16], repeats=1)) as connection:
        found = [row["karp_flatt"] for row in scaling_table(scaling_rows(connection))]
    assert found == [None, pytest.approx((52 / 102 - 0.5) / 0.5), pytest.approx((27 / 102 - 0.25) / 0.75)]


def test_the_printed_table() -> None:
    text = text_of(two_sites())
    units = ("(s)", "(samples/s)", "(ranks)", "(runs)", "(1 = ideal)")
    for part in (*units, "102  (97.9\N{EN DASH}106)", "3 (+1 not valid)", "7.03"):
        assert part in text
    assert "lo to hi: smallest to largest run" in text


def test_without_repeats_there_is_no_spread_and_the_table_says_so() -> None:
    text = text_of(ladder([4, 8], repeats=1))
    assert "no repeats, spread unknown" in text
    assert "102 " in text
    assert "(102" not in text


def test_one_run_is_no_spread_whatever_the_view_gives_as_its_ends() -> None:
    with memory_store(ladder([4], repeats=1)) as connection:
        (row,) = scaling_rows(connection)
    row = dataclasses.replace(row, epoch_time_lo_s=row.epoch_time_s, epoch_time_hi_s=row.epoch_time_s)
    console = Console(width=160, highlight=False, no_color=True)
    with console.capture() as capture:
        console.print(render_scaling_table([row]))
    assert " 102 " in capture.get()
    assert "(102" not in capture.get()


def test_missing_values_are_dashes_not_zeros() -> None:
    text = text_of(ladder([4], repeats=1, has_base=False, samples=None))
    row = next(line for line in text.splitlines() if "juwels" in line)
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert cells[-4:] == ["\N{EN DASH}"] * 4
    assert "not measured" in text


def test_strategies_are_named() -> None:
    text = text_of(many_strategies())
    assert " strategy " in text
    assert " series " in text_of([*ladder([4], extra="x=1"), *ladder([4], extra="x=2")])
    assert all(f" {name} " in text for name in ("ddp", "fsdp2", "zero3", "horovod"))


def test_the_table_needs_neither_matplotlib_nor_numpy() -> None:
    code = "import sys, analysis.tables, analysis.answers; print({'matplotlib', 'numpy'} & set(sys.modules))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        == "set()"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (1, "1.00"), (0.5, "0.500"), (12.345, "12.3"), (999.6, "1000"), (1234.5, "1234"),
        (0.00123, "0.00123"), (0.000123, "1.23\N{MULTIPLICATION SIGN}10⁻⁴"), (1.2e7, "1.20\N{MULTIPLICATION SIGN}10⁷"),
        (-2.5, "-2.50"), (float("nan"), "nan"),
    ],
)  # fmt: skip
def test_significant(value: float, text: str) -> None:
    assert significant(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.5, "0.5"),
        (20, "20"),
        (1500, "1500"),
        (1e6, "10⁶"),
        (2e7, "2\N{MULTIPLICATION SIGN}10⁷"),
        (1e-5, "10⁻⁵"),
        (0.001, "0.001"),
    ],
)
def test_tick(value: float, text: str) -> None:
    assert tick(value) == text


def test_percent_and_span() -> None:
    assert [percent(share) for share in (0, 0.00001, 0.0123, 0.5, 1)] == ["0 %", "<0.01 %", "1.2 %", "50 %", "100 %"]
    assert [span([3, 3]), span([1, 5, 2])] == ["3", "1 to 5"]
