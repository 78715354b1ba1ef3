"""collect killed at its worst moments: the store still works, and the next collect completes."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from campaign.store import ledgercopy
from campaign.store.collect import collect
from campaign.store.db import open_store
from tests.store.world import World, epoch_rows, full_id, step_rows

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120
RECORDS = 12

CHILD = """
import os, signal, sys
from pathlib import Path
from campaign.store import collect as collecting, ingest
from tests.store.world import Sources
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
collecting.BATCH_RECORDS = 4
collecting.READ_AHEAD = 4
sources, store = Sources(Path(sys.argv[1])), Path(sys.argv[2])
"""


def child(world: World, code: str) -> subprocess.Popen[str]:
    """A process that collects into the world's store."""
    return subprocess.Popen(
        [sys.executable, "-c", CHILD + code, str(world.ledger_path), str(world.store)], cwd=ROOT, text=True,
        stdout=subprocess.PIPE,
    )  # fmt: skip


def killed(world: World, code: str) -> None:
    """Run the code, which kills itself."""
    process = child(world, code)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGKILL


def fill(world: World) -> None:
    """Records enough for several batches."""
    for index in range(RECORDS):
        world.plan_run(f"r{index}", repeat=index)
        world.queue(f"r{index}")
        world.record(f"r{index}", tables={"epochs": epoch_rows([2.0, 1.0]), "steps": step_rows(500)})


def counts(world: World) -> tuple[int, int, int, int]:
    """Records, those that have rows, epochs and steps in the store."""
    with open_store(world.store, write=False) as connection:
        [row] = connection.execute(
            "SELECT (SELECT count(*) FROM records), (SELECT count(DISTINCT run_id) FROM steps), "
            "(SELECT count(*) FROM epochs), (SELECT count(*) FROM steps)"
        ).fetchall()
    return row


WHOLE = (RECORDS, RECORDS, 2 * RECORDS, 500 * RECORDS)


def assert_consistent(world: World) -> int:
    """Each record is in the store with all of its rows or not at all; the number of records."""
    records, with_steps, epochs, steps = counts(world)
    assert (with_steps, epochs, steps) == (records, 2 * records, 500 * records)
    return records


def test_killed_between_two_batches(world: World) -> None:
    fill(world)
    killed(world, "collecting.collect(sources, store, progress=die)")
    assert assert_consistent(world) == 4
    report = collect(world, world.store)
    assert report.final == RECORDS - 4
    assert counts(world) == WHOLE


@pytest.mark.parametrize("step", ["_insert_heads", "_insert", "_note_rejects"])
def test_killed_inside_a_transaction(world: World, step: str) -> None:
    fill(world)
    killed(world, f"real = ingest.{step}\ningest.{step} = lambda *args: (real(*args), die())\n"
                  "collecting.collect(sources, store)")  # fmt: skip
    assert assert_consistent(world) == 0
    assert collect(world, world.store).final == RECORDS
    assert counts(world) == WHOLE


def test_killed_while_a_final_record_replaces_a_partial_one(world: World) -> None:
    world.plan_run("r")
    world.queue("r")
    partial = world.partial("r", tables={"steps": step_rows(7)})
    collect(world, world.store)
    partial.rename(world.folder / "away")
    world.record("r", tables={"steps": step_rows(9)})
    killed(world, "ingest._insert = die\ncollecting.collect(sources, store)")
    with open_store(world.store, write=False) as connection:
        assert connection.execute("SELECT count(*) FROM steps").fetchall() == [(7,)]
    collect(world, world.store)
    with open_store(world.store, write=False) as connection:
        assert connection.execute("SELECT count(*) FROM steps").fetchall() == [(9,)]


def test_killed_at_random_moments(world: World) -> None:
    fill(world)
    moments = random.Random(1)
    for _ in range(6):
        process = child(world, "print('go', flush=True)\ncollecting.collect(sources, store, wait_s=60)")
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(moments.uniform(0, 0.4))  # the moment is what is tested; no outcome depends on it
        process.kill()
        process.communicate(timeout=PATIENCE_S)
        assert_consistent(world)
    collect(world, world.store)
    assert counts(world) == WHOLE


def test_a_rebuild_that_is_killed_leaves_the_old_store_and_no_litter_for_long(world: World) -> None:
    fill(world)
    collect(world, world.store)
    before = world.store.stat().st_ino
    killed(world, "collecting.collect(sources, store, rebuild=True, progress=die)")
    assert world.store.stat().st_ino == before
    assert counts(world) == WHOLE
    assert [path for path in world.folder.iterdir() if ".rebuild." in path.name]
    assert collect(world, world.store, rebuild=True).final == RECORDS
    assert counts(world) == WHOLE
    assert [path.name for path in world.folder.iterdir() if ".rebuild." in path.name] == []


def test_a_ledger_whose_writer_was_killed_is_rolled_back_not_misread(world: World) -> None:
    """A journal is left beside the ledger: opened read-only, SQLite couldn't roll it back."""
    world.plan_run("r", state="queued")
    code = (
        "import os, signal, sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "db.execute('PRAGMA cache_size = 1')\ndb.execute('PRAGMA cache_spill = 1')\ndb.execute('BEGIN IMMEDIATE')\n"
        "db.execute(\"UPDATE runs SET state = 'done'\")\n"
        "db.execute('CREATE TABLE filler (x TEXT)')\n"
        "db.executemany('INSERT INTO filler VALUES (?)', [('x' * 3000,)] * 200)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    process = subprocess.run([sys.executable, "-c", code, str(world.ledger_path)], check=False)
    assert process.returncode == -signal.SIGKILL
    assert Path(f"{world.ledger_path}-journal").stat().st_size > 0, "the writer has left a journal"
    collect(world, world.store)
    with open_store(world.store, write=False) as connection:
        assert connection.execute("SELECT run_id, state FROM runs").fetchall() == [(full_id("r"), "queued")]


def test_a_ledger_that_is_being_written_is_read_as_it_was_or_waited_for(world: World) -> None:
    world.plan_run("r", state="queued")
    with world.sqlite() as db:
        db.execute("BEGIN IMMEDIATE")
        db.execute("UPDATE runs SET state = 'done'")
        with ledgercopy.open_ledger(world.ledger_path, wait_s=0.1) as reader:
            assert reader is not None
            assert reader.execute("SELECT state FROM runs").fetchall() == [("queued",)]


def test_a_rebuild_does_not_replay_the_old_stores_log(world: World) -> None:
    """A writer was killed after its commit: what it committed waits in a log beside the old store."""
    fill(world)
    collect(world, world.store)
    code = (
        "import duckdb, os, signal, sys\nc = duckdb.connect(sys.argv[1])\n"
        "c.execute('INSERT INTO data.rejects VALUES (?, now()::TIMESTAMP, ?)', ['only in the log', 'x'])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(world.store)], check=False)
    assert world.store.with_name(f"{world.store.name}.wal").stat().st_size > 0
    assert collect(world, world.store, rebuild=True).final == RECORDS
    assert counts(world) == WHOLE
    with open_store(world.store, write=True) as connection:
        assert connection.execute("FROM rejects").fetchall() == []
