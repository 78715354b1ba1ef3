"""Taking checked records into the store: many in one transaction, never row by row.

Rules for a record whose (run, attempt) the store knows already (contract section 6): a final record replaces a partial
one, a newer partial an older one, the same record changes nothing, and of two different final records of one attempt
the second is set aside.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from campaign.store.recordfile import Found
from campaign.tables import RECORD_TABLES

if TYPE_CHECKING:
    import duckdb
    import pyarrow

Verdict = Literal["new", "replaces", "same", "older", "conflict"]


class Known(NamedTuple):
    """A record that the store holds."""

    record: int
    path: str
    fingerprint: str
    written: datetime
    final: bool


@dataclass
class Ingested:
    """What one or more batches changed."""

    final: int = 0
    partial: int = 0
    replaced: int = 0
    rows: int = 0
    rejects: dict[str, str] = field(default_factory=dict)
    """Path to reason."""

    def add(self, other: Ingested) -> None:
        """Count another batch in."""
        self.final += other.final
        self.partial += other.partial
        self.replaced += other.replaced
        self.rows += other.rows
        self.rejects.update(other.rejects)


def judge(known: Known | None, found: Found) -> Verdict:
    """What a record means for what is known of its attempt."""
    if known is None:
        return "new"
    if known.fingerprint == found.fingerprint and known.final == found.final:
        return "same"
    if known.final:
        return "conflict" if found.final else "older"
    return "replaces" if found.final or found.written >= known.written else "older"


def ingest(connection: duckdb.DuckDBPyConnection, batch: Sequence[Found], rejects: dict[str, str]) -> Ingested:
    """Take a batch and note the rejects, in one transaction.

    A record that DuckDB can't decode although its checks passed is set aside too, and the rest goes on.
    """
    import duckdb

    done = Ingested(rejects=dict(rejects))
    connection.execute("BEGIN")
    try:
        _take(connection, batch, done)
        _note_rejects(connection, done.rejects, [str(found.path) for found in batch])
        connection.execute("COMMIT")
        return done
    except duckdb.Error:
        connection.execute("ROLLBACK")
        unreadable = _unreadable(connection, batch)
        if not unreadable:
            raise
    good = [found for found in batch if str(found.path) not in unreadable]
    return ingest(connection, good, rejects | {path: reason for path, reason in unreadable.items() if reason})


def _take(connection: duckdb.DuckDBPyConnection, batch: Sequence[Found], done: Ingested) -> None:
    known = known_records(connection, [(found.run_id, found.attempt) for found in batch])
    chosen: dict[tuple[str, int], Found] = {}
    for found in batch:
        key = (found.run_id, found.attempt)
        rival = chosen.get(key)
        verdict = judge(known.get(key) if rival is None else _as_known(rival), found)
        if verdict in ("new", "replaces"):
            chosen[key] = found
        elif verdict == "conflict":
            done.rejects[str(found.path)] = _conflict(found, known[key].path if rival is None else str(rival.path))
    _delete(connection, [known[key].record for key in chosen if key in known])
    done.replaced += sum(key in known for key in chosen)
    _insert(connection, list(chosen.values()))
    done.final += sum(found.final for found in chosen.values())
    done.partial += sum(not found.final for found in chosen.values())
    done.rows += sum(found.rows for found in chosen.values())


def _conflict(found: Found, other: str) -> str:
    if str(found.path) == other:
        return "the record has changed since it was collected; records never change"
    return f"differs from the final record of this attempt that was collected from {other}"


def _as_known(found: Found) -> Known:
    return Known(-1, str(found.path), found.fingerprint, found.written, found.final)


def known_records(
    connection: duckdb.DuckDBPyConnection, keys: Sequence[tuple[str, int]] | None = None
) -> dict[tuple[str, int], Known]:
    """(run_id, attempt) to what the store holds of it; of all records, or of `keys` only."""
    query = "SELECT run_id, attempt, record, path, fingerprint, written, final FROM data.records"
    values: list[Any] = []
    if keys is not None:
        query += " WHERE run_id IN (SELECT unnest(?::VARCHAR[]))"
        values = [sorted({run_id for run_id, _ in keys})]
    return {(row[0], row[1]): Known(*row[2:]) for row in connection.execute(query, values).fetchall()}


def _delete(connection: duckdb.DuckDBPyConnection, records: Sequence[int]) -> None:
    if not records:
        return
    for table in ("records", *RECORD_TABLES):
        connection.execute(f"DELETE FROM data.{table} WHERE record IN (SELECT unnest(?::INTEGER[]))", [list(records)])


def _insert(connection: duckdb.DuckDBPyConnection, batch: Sequence[Found]) -> None:
    if not batch:
        return
    [(last,)] = connection.execute("SELECT coalesce(max(record), 0) FROM data.records").fetchall()
    numbered = list(enumerate(batch, start=last + 1))
    _insert_heads(connection, numbered)
    for table, columns in RECORD_TABLES.items():
        names = ", ".join(f'"{column.name}"' for column in columns)
        files = [(number, found.parquet[table]) for number, found in numbered if table in found.parquet]
        if files:
            # file_index is a file's place in the list: no join on file names, no extra column to carry
            connection.execute(
                f"INSERT INTO data.{table} (record, {names}) SELECT (?::INTEGER[])[file_index::BIGINT + 1], {names} "
                "FROM read_parquet(?, hive_partitioning = false)",
                [[number for number, _ in files], [glob_escape(path) for _, path in files]],
            )
        rows = _streamed(table, numbered)
        if rows is not None:
            connection.register("streamed", rows)
            connection.execute(f"INSERT INTO data.{table} (record, {names}) SELECT record, {names} FROM streamed")
            connection.unregister("streamed")


def _insert_heads(connection: duckdb.DuckDBPyConnection, numbered: Iterable[tuple[int, Found]]) -> None:
    import pyarrow as pa

    seen = datetime.now(UTC).replace(tzinfo=None)
    rows = [
        {
            "record": number,
            "run_id": found.run_id,
            "attempt": found.attempt,
            "path": str(found.path),
            "fingerprint": found.fingerprint,
            "written": found.written,
            "seen": seen,
            "final": found.final,
            "complete": found.complete,
            "document": found.document,
            **found.head,
        }
        for number, found in numbered
    ]
    lists = pa.list_(pa.string())
    types = {"record": pa.int32(), "attempt": pa.int32(), "missing_nodes": lists, "nodes": lists}
    times = dict.fromkeys(("written", "seen", "started", "ended"), pa.timestamp("us"))
    numbers = dict.fromkeys(("exit_code", "exit_signal", "exit_rank", "world_size", "ranks_per_node"), pa.int32())
    flags = dict.fromkeys(("final", "complete", "dirty", "oversubscribed"), pa.bool_())
    known = types | times | numbers | flags | {"bytes_dropped": pa.int64()}
    names = sorted({name for row in rows for name in row})
    table = pa.table({name: pa.array([row.get(name) for row in rows], known.get(name, pa.string())) for name in names})
    connection.register("heads", table)
    connection.execute("INSERT INTO data.records BY NAME FROM heads")
    connection.unregister("heads")


def _streamed(table: str, numbered: Iterable[tuple[int, Found]]) -> pyarrow.Table | None:
    import pyarrow as pa

    parts = [
        found.tables[table].append_column(
            "record", pa.repeat(pa.scalar(number, pa.int32()), found.tables[table].num_rows)
        )
        for number, found in numbered
        if table in found.tables
    ]
    return pa.concat_tables(parts) if parts else None


def glob_escape(path: Path) -> str:
    """A path as read_parquet takes it literally: DuckDB would expand * ? [ in it."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in str(path))


def _unreadable(connection: duckdb.DuckDBPyConnection, batch: Iterable[Found]) -> dict[str, str]:
    """Records whose Parquet files DuckDB can't decode, with its reason: told apart from a full disk and the like.

    The reason is empty when the file has gone: the folder was renamed, and is found again by the next collect.
    """
    import duckdb

    bad = {}
    for found in batch:
        for path in found.parquet.values():
            try:
                connection.execute(
                    "SELECT bit_xor(hash(COLUMNS(*))) FROM read_parquet(?, hive_partitioning = false)",
                    [[glob_escape(path)]],
                ).fetchall()
            except (duckdb.OutOfMemoryException, duckdb.FatalException):
                raise
            except duckdb.Error as error:
                reason = f"{path.name} can't be read: {str(error).splitlines()[0]}"
                bad[str(found.path)] = reason if path.exists() else ""
    return bad


def _note_rejects(connection: duckdb.DuckDBPyConnection, rejects: dict[str, str], taken: Sequence[str]) -> None:
    """Remember what was set aside (since when for this reason) and forget what was taken after all."""
    settled = [path for path in taken if path not in rejects]
    connection.execute("DELETE FROM data.rejects WHERE path IN (SELECT unnest(?::VARCHAR[]))", [settled])
    if not rejects:
        return
    paths, reasons = list(rejects), list(rejects.values())
    connection.execute(
        "DELETE FROM data.rejects r USING (SELECT unnest(?::VARCHAR[]) AS path, unnest(?::VARCHAR[]) AS reason) n "
        "WHERE r.path = n.path AND r.reason <> n.reason",
        [paths, reasons],
    )
    connection.execute(
        "INSERT INTO data.rejects SELECT n.path, ?, n.reason FROM "
        "(SELECT unnest(?::VARCHAR[]) AS path, unnest(?::VARCHAR[]) AS reason) n ANTI JOIN data.rejects r USING (path)",
        [datetime.now(UTC).replace(tzinfo=None), paths, reasons],
    )


def forget_rejects(connection: duckdb.DuckDBPyConnection, paths: Iterable[str]) -> None:
    """Drop rejects of records that are no longer there."""
    connection.execute("DELETE FROM data.rejects WHERE path IN (SELECT unnest(?::VARCHAR[]))", [sorted(paths)])
