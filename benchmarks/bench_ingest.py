"""`collect` of 10 million step rows against DuckDB's own INSERT from the same Parquet files; and of many small records.

The peer does nothing else: no checks, no hashes, no run ids. Ours finds the records, checks size, SHA-256, schema and
rows, and keeps which run each row belongs to.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import paired_ratios, row, seconds
from campaign.store.collect import collect
from campaign.tables import record_schema
from tests.store.world import World, epoch_rows, file_entry, record_json

RECORDS = 40
ROWS = 250_000
"""Step rows of one record."""
SMALL_RECORDS = 1000
BOUND = 0.6
PAIRS = 3


def run() -> list[dict[str, Any]]:
    """Share of the peer's speed (at least 60 %), and seconds for 1,000 records of a few rows each."""
    with tempfile.TemporaryDirectory() as folder:
        return [_many_rows(Path(folder) / "rows"), _many_records(Path(folder) / "records")]


def _many_rows(folder: Path) -> dict[str, Any]:
    world = World(folder)
    files = []
    for number in range(RECORDS):
        run_id = world.plan_run(f"r{number}", repeat=number)
        world.queue(run_id)
        files.append(_record_of_steps(world, run_id, number))
    total = RECORDS * ROWS
    ratios, mine, peer = paired_ratios(_ours(world, total), _peer(folder / "peer.duckdb", files, total), pairs=PAIRS)
    speeds = [1 / ratio for ratio in ratios]
    size = sum(path.stat().st_size for path in files) / 1e6
    detail = (
        f"{total / 1e6:.0f} M rows of {RECORDS} records, {size:.0f} MB Parquet: {total / min(mine) / 1e6:.2f} M rows/s "
        f"against {total / min(peer) / 1e6:.2f} M rows/s (best of each)"
    )
    return row("collect, 10 M step rows / DuckDB INSERT", speeds, "x", bound=BOUND, kind="min", detail=detail)


def _many_records(folder: Path) -> dict[str, Any]:
    """Against the reading of the same record.json files and one DuckDB INSERT of all their rows."""
    world = World(folder)
    files = []
    for number in range(SMALL_RECORDS):
        run_id = world.plan_run(f"r{number}", repeat=number)
        world.queue(run_id)
        path = world.record(run_id, tables={"epochs": epoch_rows([9.0, 5.0, 5.2])})
        files.append(path / "epochs.parquet")
    total = 3 * SMALL_RECORDS
    ours = _ours(world, total)

    def peer() -> float:
        insert = _peer(folder / "peer.duckdb", files, total)
        return insert() + seconds(lambda: [json.loads((f.parent / "record.json").read_bytes()) for f in files])

    ratios, mine, theirs = paired_ratios(ours, peer, pairs=3)
    detail = f"{SMALL_RECORDS / min(mine):,.0f} records/s against {SMALL_RECORDS / min(theirs):,.0f}/s"
    return row("collect, 1,000 small records / JSON and DuckDB", ratios, "x", bound=4.0, kind="max", detail=detail)


def _ours(world: World, rows: int) -> Callable[[], float]:
    def call() -> float:
        world.store.unlink(missing_ok=True)
        spent = seconds(lambda: collect(world, world.store))
        with duckdb.connect(str(world.store), read_only=True) as connection:
            counted = connection.execute(
                "SELECT (SELECT count(*) FROM steps) + (SELECT count(*) FROM epochs)"
            ).fetchall()
        if counted != [(rows,)]:
            raise RuntimeError(f"{counted} rows arrived, {rows} were written")
        return spent

    return call


def _peer(path: Path, files: list[Path], rows: int) -> Callable[[], float]:
    names = [str(file) for file in files]

    def insert() -> None:
        with duckdb.connect(str(path)) as connection:
            connection.execute("CREATE TABLE t AS FROM read_parquet(?) LIMIT 0", [names[:1]])
            connection.execute("INSERT INTO t FROM read_parquet(?)", [names])

    def call() -> float:
        path.unlink(missing_ok=True)
        spent = seconds(insert)
        with duckdb.connect(str(path), read_only=True) as connection:
            if connection.execute("SELECT count(*) FROM t").fetchall() != [(rows,)]:
                raise RuntimeError("the peer lost rows")
        return spent

    return call


def _record_of_steps(world: World, run_id: str, seed: int) -> Path:
    """A record with step times as a training gives them: gamma-distributed, so that they don't compress to nothing."""
    schema = record_schema("steps")
    numbers = np.random.default_rng(seed)
    step = np.arange(ROWS)
    fixed = {"rank": np.zeros(ROWS), "step": step, "epoch": step // 1000, "samples": np.full(ROWS, 64)}
    columns = [
        pa.array(fixed[field.name].astype(field.type.to_pandas_dtype()))
        if field.name in fixed
        else pa.array(numbers.gamma(4, 0.001, ROWS))
        for field in schema
    ]
    folder = world.run_dir(run_id) / "a1"
    folder.mkdir(parents=True)
    path = folder / "steps.parquet"
    pq.write_table(pa.table(columns, schema=schema), path, compression="zstd", row_group_size=1 << 17)
    document = record_json(run_id, 1) | {"files": {path.name: file_entry(path, ROWS)}}
    (folder / "record.json").write_text(json.dumps(document), encoding="utf-8")
    return path
