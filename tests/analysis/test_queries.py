"""Choosing runs, matching runs with points, errors that help. Runs on the real store's views too."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from analysis import queries
from analysis.choice import Choice
from analysis.figures import KINDS, draw
from analysis.names import line_names, series_items
from analysis.queries import NoData, run_points, scaling_rows
from campaign.errors import BadInput
from campaign.store.db import open_store
from tests.analysis.answers_store import Run, ladder, memory_store
from tests.analysis.shapes import many_strategies, two_sites


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (Choice(), 28),
        (Choice(series=("fsdp2",)), 4),
        (Choice(series=("zero1", "zero2")), 8),
        (Choice(series=("strategy=zero",)), 16),
        (Choice(studies=("strong_scaling",), where="world_size > 8"), 14),
        (Choice(where="world_size = 4 OR world_size = 8"), 14),
        (Choice(sites=("juwels",), where="true -- all"), 28),
        (Choice(sites=("elsewhere",)), 0),
        (Choice(ids=()), 0),
    ],
)
def test_choice(choice: Choice, expected: int) -> None:
    with memory_store(many_strategies()) as connection:
        assert len(scaling_rows(connection, choice)) == expected


def test_run_ids_and_their_beginnings() -> None:
    runs = two_sites()
    with memory_store(runs) as connection:
        assert [point.run_id for point in run_points(connection, Choice(runs=(runs[0].run_id[:9],)))] == [
            runs[0].run_id
        ]
        assert [point.run_id for point in run_points(connection, Choice(ids=(runs[1].run_id,)))] == [runs[1].run_id]


def test_a_point_stands_for_all_its_valid_runs() -> None:
    with memory_store(ladder([4, 8])) as connection:
        assert [row.n for row in scaling_rows(connection, Choice(where="repeat = 0"))] == [3, 3]
        assert len(run_points(connection, Choice(where="repeat = 0"))) == 2


def test_runs_are_matched_with_points_whose_series_names_the_batch() -> None:
    runs = [
        run
        for batch in (128, 256)
        for run in ladder([4, 8], global_batch=batch, suffix=f" global_batch={batch}", repeats=2)
    ]
    with memory_store(runs) as connection:
        rows = scaling_rows(connection, Choice(where="global_batch = 128"))
        assert {row.series for row in rows} == {"strategy=ddp global_batch=128"}
        assert {point.series for point in run_points(connection)} == {
            f"strategy=ddp global_batch={b}" for b in (128, 256)
        }


def test_of_a_repeat_measured_twice_the_newest_counts() -> None:
    runs = [Run(revision=revision, epoch_time_s=10.0 - revision) for revision in (0, 1)]
    with memory_store(runs) as connection:
        assert [point.epoch_time_s for point in run_points(connection)] == [9.0]
        assert [row.epoch_time_s for row in scaling_rows(connection)] == [9.0]


def test_runs_that_have_not_ended_are_no_points() -> None:
    with memory_store([Run(), Run(repeat=1, valid=None, state="running")]) as connection:
        assert len(run_points(connection)) == 1


@pytest.mark.parametrize("where", ["nodes <", "nonsense = 1", "nodes = 'many'", "count(*) > 1"])
def test_a_bad_condition_is_an_error_that_names_the_columns(where: str) -> None:
    with memory_store(two_sites()) as connection, pytest.raises(BadInput) as caught:
        scaling_rows(connection, Choice(where=where))
    (problem,) = caught.value.problems
    assert (problem.key, problem.value) == ("--where", where)
    assert "world_size" in (problem.allowed or "")


@pytest.mark.parametrize(
    ("runs", "choice", "parts"),
    [
        ([], Choice(), ("the store has no runs", "campaign run SITE")),
        (two_sites(), Choice(sites=("nowhere",)), ("--site nowhere", "sites: juwels, vega")),
        (two_sites(), Choice(where="nodes > 99"), ("--where 'nodes > 99'", "studies: strong_scaling")),
        ([Run(valid=None, state="queued")], Choice(), ("none of the 1 chosen runs has ended", "campaign status")),
        ([Run(epoch_time_s=None)], Choice(), ("1 have ended and 1 are valid", "campaign collect")),
    ],
)
@pytest.mark.parametrize("name", KINDS)
def test_nothing_to_draw_says_why_and_what_to_type(
    name: str, runs: list[Run], choice: Choice, parts: tuple[str, ...]
) -> None:
    with memory_store(runs) as connection, pytest.raises(NoData) as caught:
        draw(name, connection, choice)
    assert caught.value.exit_code == 2
    for part in (f"figure `{name}`", *parts):
        assert part in str(caught.value)


EPOCH = "INSERT INTO epochs (run_id, attempt, epoch, warmup, epoch_time_s, steps) SELECT run_id, 1, {}, 16 FROM runs"
STEP = "INSERT INTO steps (run_id, attempt, rank, step, epoch, step_s) SELECT run_id, 1, 0, 0, {} FROM runs"
WINDOW = (
    'INSERT INTO windows (run_id, attempt, epoch, "window", metric, unit, n, median) '
    "SELECT run_id, 1, {}, 0, 'step_s', 's', 1, 0.5 FROM runs"
)


@pytest.mark.parametrize(
    ("name", "recorded", "says"),
    [
        ("scaling", [EPOCH.format("1, false, NULL")], "1 recorded epochs, but no epoch_time_s"),
        ("cross-site", [EPOCH.format("1, false, NULL")], "1 recorded epochs, but no epoch_time_s"),
        ("scaling", [EPOCH.format("0, true, 5.0")], "1 timed warm-up epochs alone"),
        (
            "steps",
            [STEP.format("0, NULL")],
            "1 recorded steps, but neither step_s nor a part of it (data_wait_s, h2d_s",
        ),
        ("steps", [EPOCH.format("1, false, 5.0")], "1 recorded epochs, but no steps"),
        ("steps", [EPOCH.format("0, true, 5.0"), WINDOW.format(0)], "1 timed steps in warm-up epochs alone"),
    ],
)
def test_what_was_recorded_instead_is_said(name: str, recorded: list[str], says: str) -> None:
    with memory_store([Run(epoch_time_s=None)]) as connection:
        for statement in recorded:
            connection.execute(statement)
        with pytest.raises(NoData) as caught:
            draw(name, connection, Choice())
    assert f"none has recorded it: {says}" in str(caught.value)


def test_one_site_is_not_enough_for_cross_site() -> None:
    with (
        memory_store(ladder([4, 8])) as connection,
        pytest.raises(NoData, match=r"strong_scaling on juwels[\s\S]*campaign run"),
    ):
        draw("cross-site", connection, Choice())


@pytest.fixture
def real_store(tmp_path: Path) -> Path:
    """An empty store with the real views."""
    path = tmp_path / "campaign.duckdb"
    with open_store(path, write=True):
        pass
    return path


def test_every_query_runs_on_the_real_views(real_store: Path) -> None:
    choice = Choice(("s",), ("t",), ("x",), ("0a",), "nodes > 1", ids=("0b",))
    with open_store(real_store, write=False) as connection:
        for read in (scaling_rows, run_points, queries.phase_rows, queries.step_rows):
            assert list(read(connection, choice)) == []
        source = queries.provenance(connection, ["0a"])
        assert (source.runs, source.excluded, source.sites, source.newest) == (0, 0, (), None)
        for name in KINDS:
            with pytest.raises(NoData):
                draw(name, connection, Choice())


def test_the_tests_own_store_has_the_real_columns(real_store: Path) -> None:
    with open_store(real_store, write=False) as connection, memory_store([]) as ours:
        for table in ("runs", "jobs", "epochs", "windows", "steps", "phases", "startup", "scaling"):
            assert columns(ours, table).items() <= columns(connection, table).items(), table


def columns(connection: duckdb.DuckDBPyConnection, table: str) -> dict[str, str]:
    # integers of other widths are the same to a reader
    return {
        name: "INTEGER" if kind in ("BIGINT", "HUGEINT", "INTEGER") else kind
        for name, kind, *_ in connection.execute(f"DESCRIBE {table}").fetchall()
    }


def test_series_items() -> None:
    assert series_items("strategy=ddp hidden=64 #1a2b3c global_batch=256") == {
        "strategy": "ddp", "hidden": "64", "#": "#1a2b3c", "global_batch": "256",
    }  # fmt: skip
    assert series_items("x=a b c #1a2b3c") == {"x": "a b c", "#": "#1a2b3c"}
    assert series_items("#1a2b3c") == {"#": "#1a2b3c"}
    assert series_items("") == {}
    assert series_items("free text") == {"free text": ""}


def names(*keys: tuple[str, str, str, str | None], **more: object) -> list[str]:
    found = line_names(keys, **more)  # type: ignore[arg-type]
    return [found[key] for key in keys]


def test_names_hold_only_what_differs() -> None:
    one = ("juwels", "s", "strategy=ddp #1a2b3c", "ddp")
    assert names(one) == ["ddp"]
    assert names(one, keep_site=True) == ["juwels"]
    assert names(one, ("vega", *one[1:])) == ["juwels", "vega"]
    assert names(one, ("juwels", "s", "strategy=fsdp2 #1a2b3c", "fsdp2")) == ["ddp", "fsdp2"]
    assert names(one, ("juwels", "s", "strategy=ddp x=2 #1a2b3c", "ddp")) == ["ddp", "x=2"]
    assert names(("juwels", "s", "", None)) == ["juwels"]


def test_names_tell_parameters_that_the_series_only_digests() -> None:
    one, two = ("juwels", "s", "strategy=ddp #aaaaaa", "ddp"), ("juwels", "s", "strategy=ddp #bbbbbb", "ddp")
    assert names(one, two) == ["#aaaaaa", "#bbbbbb"]
    params = {one: {"hidden": 64, "lr": 0.1, "global_batch": 1}, two: {"hidden": 128, "lr": 0.1, "global_batch": 2}}
    assert names(one, two, params=params) == ["hidden=64", "hidden=128"]
