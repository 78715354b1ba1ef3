"""collect: what is taken, what is set aside, what replaces what, and how little it costs."""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from campaign.errors import BadInput
from campaign.store.collect import CollectReport, collect
from campaign.store.db import open_store
from campaign.store.ingest import glob_escape
from campaign.store.tablefile import read_stream
from tests.store.world import World, arrow, epoch_rows, file_entry, full_id, schema_of, step_rows


def query(world: World, sql: str) -> list[tuple[Any, ...]]:
    """Rows of one query."""
    with open_store(world.store, write=False) as connection:
        return connection.execute(sql).fetchall()


def reasons(report: CollectReport) -> str:
    """All reasons in one text."""
    return "\n".join(reject.reason for reject in report.rejects)


def everything(world: World) -> dict[str, list[tuple[Any, ...]]]:
    """The content of every view, less what depends on when it was collected."""
    views = "runs jobs epochs steps windows phases observations starts startup scaling rejects records".split()
    skipped = {"jobs": "EXCLUDE (state_age_s)", "records": "EXCLUDE (seen)", "rejects": "EXCLUDE (seen)"}
    return {view: query(world, f"SELECT * {skipped.get(view, '')} FROM {view} ORDER BY ALL") for view in views}


ALL_TABLES = {
    "epochs": epoch_rows([9.0, 5.0, 5.2]),
    "steps": step_rows(30),
    "windows": [{"epoch": 0, "window": 0, "metric": "step_s", "unit": "s", "n": 4, "min": 1.0, "min_rank": 3,
                 "median": 1.5, "p99": 2.0, "max": 2.0, "max_rank": 1}],
    "events": [
        {"kind": "phase", "name": "job_start", "node": "n1", "t_us": 0},
        {"kind": "observe", "name": "val_accuracy", "rank": 0, "node": "n1", "t_us": 5, "value": 0.5, "unit": "1",
         "labels": [("split", "val"), ("fold", "2")], "step": 7},
    ],
}  # fmt: skip


def test_every_table_of_a_record_comes_out_of_its_view(world: World) -> None:
    run_id = world.plan_run("r")
    world.queue("r")
    world.record("r", tables=ALL_TABLES)
    report = collect(world, world.store)
    assert (report.final, report.partial, report.rows, report.rejects) == (1, 0, 3 + 30 + 1 + 2, [])
    assert query(world, "SELECT count(*), sum(step), any_value(run_id), any_value(attempt) FROM steps") == [
        (30, sum(range(30)), run_id, 1)
    ]
    assert query(world, "SELECT epoch, warmup, epoch_time_s FROM epochs ORDER BY 1") == [
        (0, True, 9.0), (1, False, 5.0), (2, False, 5.2)
    ]  # fmt: skip
    assert query(world, 'SELECT "window", metric, min, min_rank, median, p99, max, max_rank FROM windows') == [
        (0, "step_s", 1.0, 3, 1.5, 2.0, 2.0, 1)
    ]
    assert query(world, "SELECT name, labels['fold'], rank, step, value, unit FROM observations") == [
        ("val_accuracy", "2", 0, 7, 0.5, "1")
    ]
    assert query(world, "SELECT phase, n, max_s FROM phases") == [("job_start", 1, 0.0)]


def test_collecting_twice_changes_nothing_and_touches_no_file_of_known_runs(world: World) -> None:
    for index in range(20):
        world.measured(f"r{index}")
    assert collect(world, world.store).final == 20
    before = everything(world)
    modified = world.store.stat().st_mtime_ns
    with file_calls(world.run_root) as calls:
        report = collect(world, world.store)
    assert report.records == 0
    assert calls == []
    assert world.store.stat().st_mtime_ns == modified, "the store isn't opened for writing when nothing is new"
    assert everything(world) == before


def test_runs_that_have_not_begun_cost_one_listing_for_many(world: World) -> None:
    runs = [world.plan_run(f"{index:016x}", state="queued", attempts=1) for index in range(100)]  # all below runs/00
    for run_id in runs:
        world.queue(run_id, state="queued", started=None, ended=None)
    world.run_dir(runs[0]).parent.mkdir(parents=True)
    with file_calls(world.run_root) as calls:
        collect(world, world.store)
    assert len(calls) == 1, calls


def test_a_new_record_is_found_with_few_calls(world: World) -> None:
    for index in range(50):
        world.plan_run(f"{index:016x}", state="queued")
        world.queue(f"{index:016x}", state="queued")
    world.record(f"{7:016x}")
    with file_calls(world.run_root) as calls:
        assert collect(world, world.store).final == 1
    # two listings, record.json (open), one table (open)
    assert len([call for call in calls if call[0] != "fstat"]) <= 5, calls


@contextmanager
def file_calls(root: Path) -> Iterator[list[tuple[str, str]]]:
    """What this process asks of the file system below `root`: (call, path), in every thread."""
    calls: list[tuple[str, str]] = []
    names = {"stat", "lstat", "listdir", "scandir", "open", "access"}

    def watch(frame: Any, event: str, arg: Any) -> None:
        if event == "c_call" and arg.__name__ in names and (arg.__module__ or "") in ("posix", "io", "_io", "os"):
            # a path is among the caller's local values; which, depends on the caller
            for value in frame.f_locals.values():
                if isinstance(value, (str, Path)) and str(value).startswith(str(root)):
                    calls.append((arg.__name__, str(value)))
                    break

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


# -- what replaces what ----------------------------------------------------------------------------------------------


def test_a_partial_record_is_taken_and_marked(world: World) -> None:
    world.plan_run("r", state="timeout")
    world.queue("r", state="timeout")
    world.partial("r", tables={"epochs": epoch_rows([3.0, 2.0]), "steps": step_rows(12)})
    report = collect(world, world.store)
    assert (report.final, report.partial) == (0, 1)
    assert query(world, "SELECT count(*) FROM steps") == [(12,)]
    assert query(world, "SELECT complete, missing_nodes FROM records") == [(False, None)]
    assert query(world, "SELECT state, valid, why_invalid FROM runs") == [("timeout", False, "ended as timeout")]


def test_a_partial_record_that_grows_replaces_itself_and_the_final_one_replaces_it(world: World) -> None:
    world.plan_run("r", state="running")
    world.queue("r", state="running", ended=None)
    partial = world.partial("r", tables={"steps": step_rows(5)})
    collect(world, world.store)
    assert collect(world, world.store).records == 0, "an unchanged partial record isn't read again"
    world.partial("r", tables={"steps": step_rows(9)})
    report = collect(world, world.store)
    assert (report.partial, report.replaced) == (1, 1)
    assert query(world, "SELECT count(*) FROM steps") == [(9,)]
    shutil.rmtree(partial)
    world.record("r", tables={"steps": step_rows(11), "epochs": epoch_rows([1.0])})
    report = collect(world, world.store)
    assert (report.final, report.replaced) == (1, 1)
    assert query(world, "SELECT count(*) FROM steps") == [(11,)]
    assert query(world, "SELECT count(*), bool_and(complete) FROM records") == [(1, True)]
    assert collect(world, world.store).records == 0


def test_an_older_copy_of_a_partial_record_does_not_replace_a_newer_one(world: World, tmp_path: Path) -> None:
    world.plan_run("r", state="running")
    world.queue("r", state="running")
    world.queue("r", root=tmp_path / "old", tag="c000000000001", state="refused")
    new = world.partial("r", tables={"steps": step_rows(9)})
    old = world.partial("r", root=tmp_path / "old", tables={"steps": step_rows(3)})
    for folder, moment in ((old, 1_000_000_000), (new, 2_000_000_000)):
        for file in folder.iterdir():
            os.utime(file, (moment, moment))
    for _ in range(2):
        collect(world, world.store)
        assert query(world, "SELECT count(*) FROM steps") == [(9,)]


def test_the_same_final_record_in_another_root_changes_nothing(world: World, tmp_path: Path) -> None:
    world.measured("r")
    collect(world, world.store)
    shutil.copytree(world.run_dir("r"), world.run_dir("r", tmp_path / "copy"))
    world.queue("r", root=tmp_path / "copy", tag="c000000000001")
    report = collect(world, world.store)
    assert (report.records, report.rejects) == (0, [])


@pytest.mark.parametrize("together", [True, False])
def test_of_two_different_final_records_the_second_is_set_aside(world: World, tmp_path: Path, together: bool) -> None:
    world.measured("r", [9.0, 5.0])
    other_root = world.folder / "z other root"
    if not together:
        collect(world, world.store)
    world.queue("r", root=other_root, tag="c000000000001")
    other = world.record("r", root=other_root, tables={"epochs": epoch_rows([9.0, 7.0])})
    for _ in range(2):
        report = collect(world, world.store)
        assert [reject.path for reject in report.rejects] == [str(other)]
        assert "differs from the final record" in reasons(report)
        assert query(world, "SELECT epoch_time_s FROM epochs WHERE epoch = 1") == [(5.0,)]
    assert query(world, "SELECT path FROM rejects") == [(str(other),)]
    shutil.rmtree(other)
    assert collect(world, world.store).rejects == []
    assert query(world, "FROM rejects") == [], "what somebody has moved away is forgotten"


def test_a_head_that_could_not_rename_its_folder_has_left_a_final_record(world: World) -> None:
    world.measured("r")
    folder = world.run_dir("r") / "a1"
    folder.rename(folder.with_name("a1.partial"))
    report = collect(world, world.store)
    assert (report.final, report.partial, report.rejects) == (1, 0, [])
    folder.with_name("a1.partial").rename(folder)
    assert collect(world, world.store).rejects == []
    assert query(world, "SELECT count(*) FROM epochs") == [(3,)]


def test_a_head_killed_while_it_made_parquet_loses_nothing(world: World) -> None:
    """Some tables are Parquet already, one is written halfway beside its stream."""
    world.plan_run("r", state="timeout")
    world.queue("r", state="timeout")
    folder = world.partial("r", tables={"steps": step_rows(9)})
    pq.write_table(arrow("epochs", epoch_rows([3.0, 2.0])), folder / "epochs.parquet")
    (folder / "steps.parquet").write_bytes(b"PAR1 not yet")
    report = collect(world, world.store)
    assert (report.partial, report.rejects) == (1, [])
    assert query(world, "SELECT (SELECT count(*) FROM steps), (SELECT count(*) FROM epochs)") == [(9, 2)]


def test_a_table_that_stayed_a_stream_on_a_full_disk_is_taken(world: World) -> None:
    world.plan_run("r", state="failed", fail_class="quota")
    world.queue("r", state="failed")
    folder = world.partial("r", tables={"steps": step_rows(9)})
    final = world.record("r", tables={}, complete=False, state="failed", fail_class="quota",
                         files={"steps.arrows": file_entry(folder / "steps.arrows", 9)})  # fmt: skip
    (folder / "steps.arrows").rename(final / "steps.arrows")
    folder.rmdir()
    report = collect(world, world.store)
    assert (report.final, report.rejects) == (1, [])
    assert query(world, "SELECT count(*) FROM steps") == [(9,)]
    assert query(world, "SELECT valid FROM runs") == [(False,)]


def test_attempts_that_the_ledger_does_not_know_are_found_beside_those_it_knows(world: World) -> None:
    """A job that started late, after its attempt number was given back."""
    world.plan_run("r", state="failed")
    world.queue("r", 1, state="failed")
    world.record("r", 1, state="failed")
    world.record("r", 2)
    assert collect(world, world.store).final == 2


def test_only_runs_of_the_selection_are_looked_for(world: World) -> None:
    wanted = world.measured("a")
    world.measured("b")
    report = collect(world, world.store, selection=[wanted])
    assert report.final == 1
    assert query(world, "SELECT DISTINCT run_id FROM epochs") == [(wanted,)]
    assert query(world, "SELECT count(*) FROM runs") == [(2,)], "the ledger's copy is whole"


def test_a_selection_forgets_no_rejects(world: World) -> None:
    wanted = world.measured("a")
    world.measured("b", record={"schema": 99})
    collect(world, world.store)
    collect(world, world.store, selection=[wanted])
    assert query(world, "SELECT count(*) FROM rejects") == [(1,)]


# -- what is set aside -----------------------------------------------------------------------------------------------


def cut(name: str, keep: float) -> Callable[[Path], None]:
    """A file of which only the first part is there."""

    def break_it(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: int(len(data) * keep)])

    return break_it


def remove(name: str) -> Callable[[Path], None]:
    """A file that is missing."""
    return lambda folder: (folder / name).unlink()


def write(name: str, data: bytes) -> Callable[[Path], None]:
    """A file with another content."""

    def break_it(folder: Path) -> None:
        (folder / name).write_bytes(data)

    return break_it


def folder_instead(folder: Path) -> None:
    """A folder where record.json should be."""
    (folder / "record.json").unlink()
    (folder / "record.json").mkdir()


def flip(folder: Path) -> None:
    """One byte of a table is another."""
    data = bytearray((folder / "epochs.parquet").read_bytes())
    data[len(data) // 2] ^= 0xFF
    (folder / "epochs.parquet").write_bytes(bytes(data))


def edit(**values: Any) -> Callable[[Path], None]:
    """record.json with other values; `...` leaves a key out."""

    def break_it(folder: Path) -> None:
        document = json.loads((folder / "record.json").read_text()) | values
        kept = {key: value for key, value in document.items() if value is not ...}
        (folder / "record.json").write_text(json.dumps(kept))

    return break_it


def table(data: pa.Table | bytes, rows: int | None = None) -> Callable[[Path], None]:
    """epochs.parquet as something else, with the right hash."""

    def break_it(folder: Path) -> None:
        path = folder / "epochs.parquet"
        if isinstance(data, bytes):
            path.write_bytes(data)
        else:
            pq.write_table(data, path)
        count = rows if rows is not None else (0 if isinstance(data, bytes) else data.num_rows)
        edit(files={path.name: file_entry(path, count)})(folder)

    return break_it


def damaged_pages(folder: Path) -> None:
    """A footer that is right over pages that can't be decoded, with the right hash: a writer's fault."""
    path = folder / "epochs.parquet"
    data = bytearray(path.read_bytes())
    footer = int.from_bytes(data[-8:-4], "little") + 8
    data[4:-footer] = b"\xff" * (len(data) - 4 - footer)
    path.write_bytes(bytes(data))
    edit(files={path.name: file_entry(path, 3)})(folder)


EPOCHS = epoch_rows([9.0, 5.0, 5.2])
WRONG_TYPE = arrow("epochs", EPOCHS).set_column(0, pa.field("epoch", pa.int64()), pa.array([0, 1, 2], pa.int64()))
NEWER_TABLE = arrow("epochs", EPOCHS, version=2)
FEWER_COLUMNS = arrow("epochs", EPOCHS).drop_columns(["loss"])
NO_METADATA = arrow("epochs", EPOCHS).replace_schema_metadata(None)

FAULTS: list[tuple[str, Callable[[Path], None], str]] = [
    ("half-record-json", cut("record.json", 0.5), "record.json is not JSON"),
    ("empty-record-json", cut("record.json", 0), "record.json is not JSON"),
    ("no-record-json", remove("record.json"), "there is no record.json"),
    ("record-json-is-a-list", write("record.json", b"[]"), "not a JSON object"),
    ("record-json-is-a-folder", folder_instead, "record.json can't be read"),
    ("record-json-is-a-pickle", write("record.json", b"\x80\x04\x95"), "record.json is not JSON"),
    ("deep-record-json", write("record.json", b"[" * 100_000), "record.json is not JSON"),
    ("newer-schema", edit(schema=2), "schema 2, this campaign knows 1"),
    ("schema-is-text", edit(schema="1"), "schema is '1'"),
    ("key-missing", edit(nodes=...), "nodes: Field required"),
    ("wrong-type", edit(world_size="4"), "world_size: Input should be a valid integer"),
    ("bool-is-no-number", edit(bytes_dropped=True), "bytes_dropped: Input should be a valid integer"),
    ("number-too-large", edit(world_size=2**40), "world_size: Input should be less"),
    ("time-without-zone", edit(started="2026-11-01T00:00:00"), "started: Input should have timezone"),
    ("lone-surrogate", edit(reason="\ud800"), "record.json:"),
    ("other-run", edit(run_id="f" * 16), "but lies in"),
    ("other-attempt", edit(attempt=2), "but lies in"),
    ("half-table", cut("epochs.parquet", 0.5), "bytes, record.json says"),
    ("changed-table", flip, "another SHA-256"),
    ("no-table", remove("epochs.parquet"), "epochs.parquet is missing"),
    ("not-parquet", table(b"hello"), "epochs.parquet is not a Parquet file"),
    ("column-of-wrong-type", table(WRONG_TYPE), "column epoch is int64; expected int32"),
    ("column-missing", table(FEWER_COLUMNS), "epochs.parquet has the columns"),
    ("table-of-newer-schema", table(NEWER_TABLE), "epochs.parquet has schema 2"),
    ("table-without-metadata", table(NO_METADATA), "lacks the metadata campaign_schema"),
    ("rows-missing", table(arrow("epochs", EPOCHS), rows=7), "has 3 rows, record.json says 7"),
    ("pages-damaged", damaged_pages, "epochs.parquet can't be read"),
]  # fmt: skip


def test_broken_records_are_set_aside_with_the_reason_and_the_rest_goes_on(world: World) -> None:
    """As many broken records as there are faults, among good ones: each is set aside, each good one taken."""
    expected = {}
    for name, break_it, reason in FAULTS:
        world.measured(name)
        folder = world.run_dir(name) / "a1"
        break_it(folder)
        expected[str(folder)] = reason
    good = [world.measured(f"good{index}") for index in range(5)]
    report = collect(world, world.store)
    assert report.final == 5
    assert {reject.path for reject in report.rejects} == set(expected)
    for reject in report.rejects:
        assert expected[reject.path] in reject.reason
    assert query(world, "SELECT DISTINCT run_id FROM epochs ORDER BY 1") == [(run_id,) for run_id in sorted(good)]
    assert query(world, "SELECT path, reason FROM rejects ORDER BY 1") == sorted(report.rejects)
    assert query(world, "SELECT DISTINCT valid, why_invalid FROM runs ORDER BY 1") == [
        (False, "no complete record"), (True, None)
    ]  # fmt: skip


@pytest.mark.parametrize("break_it", [damaged_pages, edit(nodes=...)], ids=["found-by-duckdb", "found-by-the-checks"])
def test_a_broken_record_alone_is_set_aside(world: World, break_it: Callable[[Path], None]) -> None:
    world.measured("bad")
    break_it(world.run_dir("bad") / "a1")
    report = collect(world, world.store)
    assert (report.final, len(report.rejects)) == (0, 1)
    assert query(world, "SELECT count(*) FROM rejects") == [(1,)]


def test_a_mended_record_is_taken_and_its_reject_forgotten(world: World) -> None:
    """A record that arrives file by file, as rsync copies it."""
    world.measured("r")
    path = world.run_dir("r") / "a1" / "epochs.parquet"
    data = path.read_bytes()
    path.unlink()
    first = collect(world, world.store)
    [(seen,)] = query(world, "SELECT seen FROM rejects")
    assert len(first.rejects) == len(collect(world, world.store).rejects) == 1
    assert query(world, "SELECT seen FROM rejects") == [(seen,)], "since when stays"
    path.write_bytes(data[:100])
    assert "has 100 bytes" in reasons(collect(world, world.store))
    assert query(world, "SELECT count(*) FROM rejects") == [(1,)]
    path.write_bytes(data)
    assert collect(world, world.store).final == 1
    assert query(world, "FROM rejects") == []


def test_nan_in_record_json_is_not_measured(world: World) -> None:
    world.measured("r", record={"clock_offsets_s": {"n1": float("nan")}, "versions": {"x": float("inf")}})
    assert collect(world, world.store).rejects == []
    assert query(world, "SELECT versions->>'x' FROM jobs") == [(None,)]


def test_keys_added_within_the_schema_are_kept(world: World) -> None:
    world.measured("r", record={"new_key": {"a": 1}})
    assert collect(world, world.store).rejects == []
    assert query(world, "SELECT document->>'$.new_key.a' FROM data.records") == [("1",)]


def test_a_partial_stream_of_wrong_columns_is_set_aside(world: World) -> None:
    world.plan_run("r", state="lost")
    world.queue("r", state="lost")
    folder = world.partial("r")
    with pa.OSFile(str(folder / "steps.arrows"), "wb") as sink, pa.ipc.new_stream(sink, WRONG_TYPE.schema) as out:
        out.write_table(WRONG_TYPE)
    assert "steps.arrows has the columns" in reasons(collect(world, world.store))


# -- streams that are cut --------------------------------------------------------------------------------------------

STREAM_ROWS = 90
STREAM_BATCHES = 5


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[int]]:
    """A stream of steps and where each of its messages ends."""
    path = tmp_path_factory.mktemp("stream") / "steps.arrows"
    ends = []
    with path.open("wb") as sink, pa.ipc.new_stream(sink, schema_of("steps")) as out:
        for batch in arrow("steps", step_rows(STREAM_ROWS)).to_batches(max_chunksize=STREAM_ROWS // STREAM_BATCHES):
            out.write_batch(batch)
            ends.append(sink.tell())
    return path.read_bytes(), ends


@given(share=st.floats(0, 1))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_stream_cut_anywhere_gives_its_whole_batches(
    stream: tuple[bytes, list[int]], tmp_path: Path, share: float
) -> None:
    data, ends = stream
    size = int(share * len(data))
    path = tmp_path / "steps.arrows"
    path.write_bytes(data[:size])
    whole = sum(end <= size for end in ends) * (STREAM_ROWS // STREAM_BATCHES)
    rows = read_stream(path, "steps")
    assert (0 if rows is None else rows.num_rows) == whole
    if rows is not None:
        assert rows.column("step").to_pylist() == list(range(whole))


@given(tail=st.binary(min_size=1, max_size=4000), batches=st.integers(0, STREAM_BATCHES))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_stream_with_a_garbled_end_gives_what_came_before(
    stream: tuple[bytes, list[int]], tmp_path: Path, tail: bytes, batches: int
) -> None:
    """What a file system may leave after a crash of its server: zeros or old blocks at the end."""
    data, ends = stream
    begin = ends[batches - 1] if batches else 0
    path = tmp_path / "steps.arrows"
    path.write_bytes(data[:begin] + tail)
    rows = read_stream(path, "steps")
    assert (0 if rows is None else rows.num_rows) == batches * (STREAM_ROWS // STREAM_BATCHES)


# -- rebuild, ledger, odd places -------------------------------------------------------------------------------------


def test_rebuild_equals_what_was_collected_step_by_step(world: World) -> None:
    shutil.rmtree(world.store, ignore_errors=True)
    for index in range(4):
        world.measured(f"r{index}", [9.0, 4.0 + index], repeat=index)
        collect(world, world.store)
    world.plan_run("running", state="running", repeat=9)
    world.queue("running", state="running", ended=None)
    world.partial("running", tables={"steps": step_rows(4)})
    collect(world, world.store)
    world.partial("running", tables={"steps": step_rows(8)})
    collect(world, world.store)
    world.measured("bad", record={"schema": 3}, repeat=10)
    world.change("UPDATE runs SET state = 'failed', fail_class = 'node' WHERE run_id = ?", full_id("r3"))
    collect(world, world.store)
    before = everything(world)
    report = collect(world, world.store, rebuild=True)
    assert report.rebuilt
    assert (report.final, report.partial, len(report.rejects)) == (4, 1, 1)
    assert everything(world) == before
    assert [path.name for path in world.folder.iterdir() if "rebuild" in path.name or path.suffix == ".wal"] == []


def test_rebuild_finds_records_that_moved_with_their_run_root(world: World, tmp_path: Path) -> None:
    world.measured("r")
    shutil.move(world.run_root, tmp_path / "moved")
    assert collect(world, world.store).final == 0
    world.extra_roots["alpha"] = tmp_path / "moved"
    assert collect(world, world.store, rebuild=True).final == 1


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [
        (write("record.json", b"junk"), "record.json is not JSON (cut or damaged)"),
        (write("epochs.parquet", b"junk"), "epochs.parquet has 4 bytes, record.json says"),
        (remove("record.json"), "there is no record.json"),
    ],
    ids=["junk-record-json", "junk-table", "no-record-json"],
)
def test_rebuild_names_a_damaged_record_and_sets_it_aside_only_when_told_to(
    world: World, break_it: Callable[[Path], None], reason: str
) -> None:
    """The store may have the last good copy; a record that is there is not called gone."""
    world.measured("damaged")
    world.measured("gone", repeat=1)
    world.measured("good", repeat=2)
    assert collect(world, world.store).final == 3
    folder = world.run_dir("damaged") / "a1"
    break_it(folder)
    gone = world.run_dir("gone") / "a1"
    shutil.rmtree(gone)
    with pytest.raises(BadInput) as caught:
        collect(world, world.store, rebuild=True)
    first, second = caught.value.problems
    assert first.file == str(folder)
    assert first.message.startswith(reason)
    assert "no longer on disk" not in first.message
    assert "1 of 3 records in the store are no longer on disk" in second.message
    assert str(gone) in second.message
    assert str(folder) not in second.message
    assert query(world, "SELECT count(DISTINCT run_id) FROM epochs") == [(3,)]
    report = collect(world, world.store, rebuild=True, force=True)
    assert report.final == 1
    [(path, why)] = query(world, "SELECT path, reason FROM rejects")
    assert (path, why.startswith(reason)) == (str(folder), True)
    assert query(world, "SELECT DISTINCT run_id FROM epochs") == [(full_id("good"),)]


def test_rebuild_takes_the_good_copy_of_a_damaged_record(world: World, tmp_path: Path) -> None:
    world.measured("r")
    assert collect(world, world.store).final == 1
    shutil.copytree(world.run_root, tmp_path / "copy")
    write("record.json", b"junk")(world.run_dir("r") / "a1")
    world.extra_roots["beta"] = tmp_path / "copy"
    report = collect(world, world.store, rebuild=True)
    assert (report.final, len(report.rejects)) == (1, 1)


def test_many_damaged_records_are_counted(world: World) -> None:
    for index in range(5):
        world.measured(f"r{index}", repeat=index)
    assert collect(world, world.store).final == 5
    for index in range(5):
        write("record.json", b"")(world.run_dir(f"r{index}") / "a1")
    with pytest.raises(BadInput) as caught:
        collect(world, world.store, rebuild=True)
    assert [problem.message.startswith("record.json is not JSON") for problem in caught.value.problems] == [
        True, True, True, False
    ]  # fmt: skip
    assert caught.value.problems[-1].message == "2 more of 5 records in the store are damaged on disk"


def test_rebuild_takes_no_records_of_runs_that_others_planned(world: World) -> None:
    """A group may share one run root."""
    world.measured("mine")
    world.record("theirs")
    assert collect(world, world.store, rebuild=True).final == 1


def test_rebuild_with_a_selection_is_refused(world: World) -> None:
    with pytest.raises(BadInput, match="whole store"):
        collect(world, world.store, rebuild=True, selection=["x"])


def test_without_a_ledger_there_is_an_empty_store(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.ledger_path.unlink()
    report = collect(world, world.store)
    assert (report.runs, report.records) == (0, 0)
    assert query(world, "FROM runs") == []


def test_the_ledgers_copy_follows_the_ledger(world: World) -> None:
    run_id = world.plan_run("r", state="planned", attempts=0)
    collect(world, world.store)
    assert query(world, "SELECT run_id, state, params->>'lr', valid FROM runs") == [(run_id, "planned", "0.001", None)]
    world.change("UPDATE runs SET state = 'queued'")
    assert collect(world, world.store).ledger_changed
    assert query(world, "SELECT state FROM runs") == [("queued",)]
    assert not collect(world, world.store).ledger_changed


def test_paths_with_glob_characters_and_equal_signs_are_taken_as_they_are(world: World) -> None:
    world.run_root = world.folder / "a [b] {c}* ?k=v é"
    world.measured("r")
    world.record("r", 2, tables={"steps": step_rows(3)})
    assert collect(world, world.store).final == 2
    assert query(world, "SELECT count(*) FROM steps") == [(3,)]
    assert glob_escape(Path("/a[1]*?")) == "/a[[]1][*][?]"


def test_many_records_need_few_open_files(world: World) -> None:
    """One statement reads hundreds of files; a login node's limit is often 1024 for all."""
    for index in range(150):
        world.measured(f"r{index}")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # the limit is on the number of a descriptor: those that this process has open already come before it
    taken = max(int(name) for name in os.listdir("/proc/self/fd")) + 1  # noqa: PTH208
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken + 64, hard))
    try:
        assert collect(world, world.store).final == 150
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert query(world, "SELECT count(*), count(DISTINCT run_id) FROM epochs") == [(450, 150)]


def test_two_sites_in_one_store(world: World, tmp_path: Path) -> None:
    world.measured("a", site="alpha")
    world.plan_run("b", site="beta")
    world.queue("b", site="beta", root=tmp_path / "beta root")
    world.record("b", root=tmp_path / "beta root", site="beta")
    assert collect(world, world.store).final == 2
    assert query(world, "SELECT r.site, count(*) FROM epochs JOIN runs r USING (run_id) GROUP BY ALL ORDER BY 1") == [
        ("alpha", 3), ("beta", 3)
    ]  # fmt: skip
