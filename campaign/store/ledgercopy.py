"""The store's copy of the ledger's runs and jobs: read from SQLite without writing it, replaced as a whole."""

from __future__ import annotations

import contextlib
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from campaign.errors import BadInput, Problem
from campaign.lockholder import busy_ledger
from campaign.store.migrate import fact, set_fact

if TYPE_CHECKING:
    import duckdb
    import pyarrow

LEDGER_SCHEMA = 3
FACT = "ledger"
NO_LEDGER = "none"
_CHANGE_COUNTER = struct.Struct(">I")
_CHANGE_COUNTER_OFFSET = 24
"""SQLite counts the commits of a file with a rollback journal in its header."""

RUNS = """
SELECT r.run_id, r.site, r.study, r.series, r.plan_id, p.seq AS plan_seq, r.workload, r.strategy, r.scaling, r.params,
  r.nodes, r.ranks_per_node, r.gpus_per_rank, r.world_size, r.local_batch, r.global_batch, r.repeat, r.pack,
  r.oversubscribed, r.state, r.fail_class, r.valid, r.why_invalid, r.attempts, r.superseded_by, r.spec
FROM runs r LEFT JOIN plans p USING (plan_id)
"""
JOBS = """
SELECT site, tag, array_index, run_id, attempt, job_id, cluster, partition, account, state, slurm_state, reason,
  submitted_at, started, ended, exit_code, signal, nodelist, state_seen_at, script_sha256
FROM jobs
"""
_INTEGERS = frozenset(
    "plan_seq nodes ranks_per_node gpus_per_rank world_size local_batch global_batch repeat oversubscribed valid "
    "attempts array_index attempt exit_code signal".split()
)

_COPY_RUNS = """
INSERT INTO data.runs BY NAME
SELECT * EXCLUDE (spec) REPLACE (params::JSON AS params, oversubscribed::BOOLEAN AS oversubscribed,
                                 valid::BOOLEAN AS valid),
  json_extract(spec, '$.baseline') AS baseline, json_extract_string(spec, '$.staging') AS staging,
  try_cast(json_extract_string(spec, '$.redirect') AS BOOLEAN) AS redirect
FROM ledger_runs
"""
_COPY_JOBS = """
INSERT INTO data.jobs BY NAME
SELECT * EXCLUDE (submitted_at) REPLACE (started::TIMESTAMP AS started, ended::TIMESTAMP AS ended,
                                         state_seen_at::TIMESTAMP AS state_seen_at),
  submitted_at::TIMESTAMP AS submitted
FROM ledger_jobs
"""


class Attempt(NamedTuple):
    """One attempt that was queued, and the run root its record is below."""

    run_root: str
    run_id: str
    attempt: int


def fingerprint(ledger: Path) -> str:
    """A short text that changes with every commit to the ledger; `none` when there is no ledger."""
    try:
        with ledger.open("rb") as file:
            header = file.read(_CHANGE_COUNTER_OFFSET + _CHANGE_COUNTER.size)
            mtime_ns = ledger.stat().st_mtime_ns
    except FileNotFoundError:
        return NO_LEDGER
    counter = header[_CHANGE_COUNTER_OFFSET:]
    changes = _CHANGE_COUNTER.unpack(counter)[0] if len(counter) == _CHANGE_COUNTER.size else 0
    return f"{ledger.resolve()}:{changes}:{mtime_ns}"


def attempts(ledger: Path) -> list[Attempt]:
    """Every attempt that the ledger knows, each once, sorted. Raises NotNow and BadInput as `open_ledger` does."""
    with open_ledger(ledger) as db:
        if db is None:
            return []
        rows = db.execute("SELECT DISTINCT submit_dir, run_id, attempt FROM jobs").fetchall()
    roots = {text: str(Path(text).parent.parent) for text in {row[0] for row in rows}}  # <run_root>/submit/<tag>
    return sorted({Attempt(roots[submit_dir], run_id, attempt) for submit_dir, run_id, attempt in rows})


def refresh_copy(connection: duckdb.DuckDBPyConnection, ledger: Path) -> bool:
    """Replace the copy if the ledger has changed since it was made; True when it was replaced.

    Call it with the store open for writing and no transaction running.
    """
    found = fingerprint(ledger)
    if fact(connection, FACT) == found:
        return False
    with open_ledger(ledger) as db:
        runs = None if db is None else _arrow(db, RUNS)
        jobs = None if db is None else _arrow(db, JOBS)
    connection.execute("BEGIN")
    connection.execute("DELETE FROM data.runs")
    connection.execute("DELETE FROM data.jobs")
    for name, table, copy in (("ledger_runs", runs, _COPY_RUNS), ("ledger_jobs", jobs, _COPY_JOBS)):
        if table is not None:
            connection.register(name, table)
            connection.execute(copy)
            connection.unregister(name)
    set_fact(connection, FACT, found)
    connection.execute("COMMIT")
    return True


@contextlib.contextmanager
def open_ledger(ledger: Path, wait_s: float = 20.0) -> Iterator[sqlite3.Connection | None]:
    """One read transaction on the ledger; None when there is none yet.

    Raises NotNow when somebody writes it for longer than `wait_s`, BadInput when it is newer or damaged.
    """
    if not ledger.exists():
        yield None
        return
    try:
        with contextlib.closing(_connect(ledger, wait_s)) as db:
            yield db if _check_schema(db, ledger) else None
    except sqlite3.OperationalError as error:
        busy = busy_ledger(ledger, error)
        if busy is not None:
            raise busy from error
        raise BadInput(Problem(f"the ledger can't be read: {error}", str(ledger))) from error
    except sqlite3.DatabaseError as error:
        raise BadInput(Problem(f"not a ledger, or damaged: {error}", str(ledger))) from error


def _connect(ledger: Path, wait_s: float) -> sqlite3.Connection:
    """Connected, in a read transaction. A journal that a killed writer left needs a writer to be rolled back."""
    for mode in ("ro", "rw"):
        db = sqlite3.connect(f"file:{quote(str(ledger.resolve()))}?mode={mode}", uri=True, timeout=wait_s,
                             isolation_level=None)  # fmt: skip
        try:
            db.execute("BEGIN")
            db.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # takes the lock
            return db
        except sqlite3.OperationalError as error:
            db.close()
            if mode == "rw" or "locked" in str(error) or "busy" in str(error):
                raise
    raise AssertionError("unreachable")


def _check_schema(db: sqlite3.Connection, ledger: Path) -> bool:
    """False for a ledger that is just being made. Raises BadInput for one of a newer campaign."""
    if not db.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'meta'").fetchone()[0]:
        return False
    found = int(db.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()[0])
    if found > LEDGER_SCHEMA:
        raise BadInput(
            Problem(
                f"the ledger has schema {found}, this campaign knows {LEDGER_SCHEMA}",
                str(ledger),
                hint="update campaign to the version that wrote it: pip install -U campaign",
            )
        )
    return True


def _arrow(db: sqlite3.Connection, query: str) -> pyarrow.Table:
    import pyarrow as pa

    cursor = db.execute(query)
    names = [column[0] for column in cursor.description]
    columns: list[Any] = list(zip(*cursor.fetchall(), strict=True)) or [()] * len(names)
    types = [pa.int64() if name in _INTEGERS else pa.string() for name in names]
    return pa.table([pa.array(column, type) for column, type in zip(columns, types, strict=True)], names=names)
