"""docs/contract.md against the code: views, record files, record.json; and the `docs` view against the views."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from campaign.store.db import open_store
from campaign.store.recordfile import Exit, File, RecordHead
from campaign.tables import EVENTS, RECORD_TABLES, record_schema
from tests.store.world import TABLES, record_json

CONTRACT = (Path(__file__).parents[2] / "docs" / "contract.md").read_text(encoding="utf-8")


def section(number: int) -> str:
    """Text of one section of the contract."""
    return re.split(r"^## \d+\. ", CONTRACT, flags=re.MULTILINE)[number]


def promised_views() -> dict[str, tuple[list[str], list[str]]]:
    """View name to (key, all columns), from the contract's block."""
    block = re.search(r"^```\n(.*?)^```", section(5), re.MULTILINE | re.DOTALL)
    assert block is not None
    views = {}
    for line in block[1].splitlines():
        found = re.match(r"(\w+)\s+\[([^]]+)\]\s*(.*)", line)
        assert found is not None, line
        key = [name.strip() for name in found[2].split(",")]
        # (BOOL) and (JSON) are types; anything longer in brackets at the end of a line is a remark
        rest = re.sub(r"\((?:BOOL|JSON)\)", "", found[3])
        columns = re.sub(r"\s{2,}\(.*$|\s\((?:scope|start-up|records|test)[^)]*\).*$", "", rest).split()
        views[found[1]] = (key, key + columns)
    return views


@pytest.fixture
def store(empty_store: Path) -> Path:
    """An empty store, only read."""
    return empty_store


def described(store: Path) -> dict[str, dict[str, str]]:
    """View to column to type, as DuckDB has them."""
    with open_store(store, write=False) as connection:
        views = [name for (name,) in connection.execute(
            "SELECT view_name FROM duckdb_views() WHERE schema_name = 'main' AND NOT internal").fetchall()]  # fmt: skip
        return {view: {row[0]: row[1] for row in connection.execute(f"DESCRIBE {view}").fetchall()} for view in views}


def test_every_view_has_the_columns_of_the_contract(store: Path) -> None:
    actual = {view: list(columns) for view, columns in described(store).items()}
    assert actual == {view: columns for view, (_, columns) in promised_views().items()}


def test_docs_names_every_column_with_its_type_and_nothing_else(store: Path) -> None:
    actual = {(view, column, type_) for view, columns in described(store).items() for column, type_ in columns.items()}
    with open_store(store, write=False) as connection:
        rows = connection.execute('SELECT view, "column", type, unit, meaning FROM docs').fetchall()
    assert {row[:3] for row in rows} == actual
    assert len(rows) == len(actual)
    assert all(row[4] for row in rows), "every column has a meaning"


def test_units_follow_the_names(store: Path) -> None:
    """A column that ends in _s, _wh or _bytes is in that unit, and numbers with such a unit are so named."""
    with open_store(store, write=False) as connection:
        rows = connection.execute('SELECT view, "column", unit FROM docs').fetchall()
    for view, column, unit in rows:
        for ending, expected in (("_s", "s"), ("_wh", "Wh"), ("_bytes", "bytes")):
            if column.endswith(ending) and "per_s" not in column:
                assert unit == expected, (view, column, unit)


def test_times_and_json_have_their_types(store: Path) -> None:
    views = described(store)
    assert {views["jobs"][name] for name in ("submitted", "started", "ended")} == {"TIMESTAMP"}
    assert views["runs"]["params"] == views["jobs"]["versions"] == views["io_cells"]["options"] == "JSON"
    assert views["observations"]["labels"] == "MAP(VARCHAR, VARCHAR)"
    assert views["runs"]["valid"] == views["starts"]["ok"] == "BOOLEAN"


def test_every_view_can_be_read_when_nothing_was_measured(store: Path) -> None:
    with open_store(store, write=False) as connection:
        for view in promised_views():
            if view != "docs":
                assert connection.execute(f"FROM {view}").fetchall() == []


@pytest.mark.parametrize("table", ["epochs", "steps", "windows"])
def test_record_files_have_the_columns_of_their_views(table: str) -> None:
    _, columns = promised_views()[table]
    in_file = [column.name for column in RECORD_TABLES[table]]
    in_view = [name for name in columns if name not in ("run_id", "attempt")]
    assert sorted(in_file) == sorted(in_view)


def test_events_have_the_columns_of_the_contract() -> None:
    text = " ".join(section(6).split())
    for column in EVENTS:
        assert re.search(rf"\b{column.name}\b", text), column.name


@pytest.mark.parametrize("table", RECORD_TABLES)
def test_record_tables_are_those_spelled_out_in_the_tests(table: str) -> None:
    """`TABLES` of world.py is written after the contract; the writer and the store use `campaign.tables`."""
    assert record_schema(table) == pa.schema(TABLES[table])
    assert (record_schema(table).metadata or {})[b"campaign_schema"] == b"1"


def promised_keys() -> dict[str, list[str]]:
    """Keys of record.json to their inner keys, from the contract's block."""
    text = re.search(r"has these keys.*?```\n(.*?)```", section(6), re.DOTALL)
    assert text is not None
    keys = {}
    flat = re.sub(r"\([^)]*\)|=1|\[\]", "", text[1])
    for name, inner in re.findall(r"(\w+)((?:\{\S*\})?)", flat):
        keys[name] = re.findall(r"\w+", inner)
    return keys


def test_record_json_has_the_keys_of_the_contract() -> None:
    fields = {field.alias or name for name, field in RecordHead.model_fields.items()}
    keys = promised_keys()
    assert fields == set(keys)
    assert set(record_json("0" * 16, 1)) == set(keys)
    assert list(Exit.model_fields) == keys["exit"]
    assert list(File.model_fields) == [key for key in keys["files"] if key != "name"]


def test_base_tables_have_the_types_of_the_record(store: Path) -> None:
    with open_store(store, write=False) as connection:
        for table, columns in RECORD_TABLES.items():
            described = connection.execute(f"DESCRIBE data.{table}").fetchall()
            assert [(row[0], row[1]) for row in described[1:]] == [(column.name, column.type) for column in columns]
