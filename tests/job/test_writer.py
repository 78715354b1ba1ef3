"""The record on disk: streams that are readable at every moment, fixed types, names and hashes that are true."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from campaign.job.writer import RecordWriter
from campaign.tables import RECORD_TABLES, record_schema

ROWS: dict[str, list[tuple[Any, ...]]] = {
    "epochs": [(0, True, 1.5, 1.0, 3, 10, 100, 90, 10 / 9, "ab", 0.5, None, 0.1, None, None, None), (1, *[None] * 15)],
    "steps": [(0, 7, 0, 1.5, 0.1, None, None, 0.2, None, None, 0.3, 8, 0.5)],
    "windows": [(0, 1, "step_s", "s", 4, 0.1, 2, 0.2, 0.3, 0.4, 1)],
    "events": [
        ("phase", "job_start", None, "n1", 0, None, None, None, None),
        ("observe", "x", 3, "n2", 2**40, 1.5, "GB", [("a", "b"), ("ä", "")], 2**40),
    ],
}
RECORD: dict[str, Any] = {"state": "done", "reason": None, "fail_class": None, "complete": True, "bytes_dropped": 0}


def writer(tmp_path: Path, messages: list[str] | None = None) -> RecordWriter:
    log = messages.append if messages is not None else print
    return RecordWriter(tmp_path / "run", 1, {"site": "local"}, group_readable=False, log=log)


def fill(made: RecordWriter) -> None:
    for name, rows in ROWS.items():
        for row in rows:
            made.tables[name].append(row)


def stream(path: Path) -> pa.Table:
    with pa.OSFile(str(path)) as source, pa.ipc.open_stream(source) as reader:
        return reader.read_all()


def test_what_is_appended_comes_back_with_fixed_types(tmp_path: Path) -> None:
    made = writer(tmp_path)
    fill(made)
    made.add_console(b"hello\n", 0, b"")
    made.flush()
    partial = made.folder
    assert json.loads((partial / "partial.json").read_text()) == {"site": "local"}
    for name in RECORD_TABLES:
        assert stream(partial / f"{name}.arrows").schema.equals(record_schema(name), check_metadata=True)
    fill(made)
    place, record = made.finish(dict(RECORD), b"=== rank 1\n")
    assert place == tmp_path / "run" / "a1"
    assert not partial.exists()
    assert {path.name for path in place.iterdir()} == {
        "record.json", "console.log", "failed.log", *(f"{name}.parquet" for name in RECORD_TABLES)
    }  # fmt: skip
    assert json.loads((place / "record.json").read_text()) == record
    for name, rows in ROWS.items():
        table = pq.read_table(place / f"{name}.parquet")
        expected = record_schema(name)
        assert (table.schema.names, table.schema.types) == (expected.names, expected.types)
        assert table.schema.metadata[b"campaign_schema"] == b"1"
        assert [tuple(row.values()) for row in table.to_pylist()] == rows * 2
        assert record["files"][f"{name}.parquet"]["rows"] == 2 * len(rows)
        assert pq.ParquetFile(place / f"{name}.parquet").metadata.row_group(0).column(0).compression == "ZSTD"
    for name, file in record["files"].items():
        data = (place / name).read_bytes()
        assert (file["bytes"], file["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())


def test_empty_tables_are_not_written(tmp_path: Path) -> None:
    made = writer(tmp_path)
    made.tables["events"].append(ROWS["events"][0])
    place, _ = made.finish(dict(RECORD))
    assert {path.name for path in place.iterdir()} == {"record.json", "events.parquet"}


def test_a_stream_cut_anywhere_gives_the_batches_before_the_cut(tmp_path: Path) -> None:
    made = writer(tmp_path)
    for number in range(5):
        made.tables["steps"].append((0, number, *ROWS["steps"][0][2:]))
        made.flush()
    path = made.folder / "steps.arrows"
    data = path.read_bytes()
    counts = []
    for size in range(0, len(data) + 1, 7):
        path.write_bytes(data[:size])
        rows = 0
        try:
            with pa.OSFile(str(path)) as source, pa.ipc.open_stream(source) as reader:
                for batch in reader:
                    assert batch["step"].to_pylist() == [rows]
                    rows += batch.num_rows
        except (pa.ArrowInvalid, OSError):
            pass
        counts.append(rows)
    assert counts == sorted(counts)
    assert (counts[0], max(counts)) == (0, 4 + (len(data) % 7 == 0))


def test_many_small_batches_become_few_row_groups(tmp_path: Path) -> None:
    made = writer(tmp_path)
    for number in range(200):
        made.tables["steps"].append((0, number, *ROWS["steps"][0][2:]))
        made.flush()
    place, _ = made.finish(dict(RECORD))
    assert pq.ParquetFile(place / "steps.parquet").num_row_groups == 1


def test_a_record_that_is_there_already_is_not_overwritten(tmp_path: Path) -> None:
    messages: list[str] = []
    made = writer(tmp_path, messages)
    fill(made)
    other = tmp_path / "run" / "a1"
    other.mkdir()
    (other / "record.json").write_text("another")
    place, _ = made.finish(dict(RECORD))
    assert place == made.folder
    assert (other / "record.json").read_text() == "another"
    assert "could not be renamed" in messages[-1]


def test_rows_that_do_not_fit_are_left_out_and_counted(tmp_path: Path) -> None:
    messages: list[str] = []
    made = writer(tmp_path, messages)
    good = ROWS["windows"][0]
    for row in (good, ("zero", *good[1:]), (2**40, *good[1:]), good):
        made.tables["windows"].append(row)
    place, record = made.finish(dict(RECORD))
    assert pq.read_table(place / "windows.parquet").num_rows == 2
    assert record["files"]["windows.parquet"]["rows"] == 2
    assert record["bytes_dropped"] > 0
    assert "2 rows" in messages[-1]


def test_text_that_is_no_utf8_does_not_stop_the_record(tmp_path: Path) -> None:
    made = writer(tmp_path)
    place, _ = made.finish(RECORD | {"env_kept": {"X": b"\xff".decode("utf-8", "surrogateescape")}})
    assert json.loads((place / "record.json").read_bytes())["env_kept"] == {"X": "?"}
