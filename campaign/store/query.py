"""Asking the store: one reading SQL statement, its columns and rows, and errors that say what to type next."""

from __future__ import annotations

import contextlib
import difflib
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaign.errors import BadInput, CampaignError, Problem
from campaign.store.db import open_store

if TYPE_CHECKING:
    import duckdb

READING = frozenset({"SELECT", "EXPLAIN", "MULTI"})
"""MULTI is what PIVOT becomes."""
FILE_FORMATS = {".csv": "FORMAT csv, HEADER", ".parquet": "FORMAT parquet, COMPRESSION zstd", ".jsonl": "FORMAT json"}
_CHUNK = 2000
_EXPLAINED = re.compile(r"\s*explain\s+(?:analyze\s+)?(?:\([^)]*\)\s*)?", re.IGNORECASE)
_UNKNOWN_NAME = re.compile(
    r"Referenced (?:column|table) \"(?P<column>[^\"]+)\"|Table with name (?P<view>\S+) does not exist"
    r"|does not have a column named \"(?P<field>[^\"]+)\""
)


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """One column of an answer; `type` is DuckDB's."""

    name: str
    type: str


@dataclass
class Answer:
    """Columns, and rows as they come; read the rows before the store is closed."""

    columns: list[ResultColumn]
    rows: Iterator[tuple[Any, ...]]


@contextlib.contextmanager
def ask(
    store: Path, sql: str, *, wait_s: float = 10.0, note: Callable[[str], None] = lambda _: None
) -> Iterator[Answer]:
    """The answer to one reading statement, while the store is open.

    Raises BadInput for wrong SQL and for statements that write, and what `open_store` raises.
    """
    with open_store(store, write=False, wait_s=wait_s, note=note) as connection:
        statement = _one_reading_statement(connection, sql)
        with _sql_errors(connection, sql):
            _interruptibly(connection, lambda: connection.execute(statement))
            columns = [ResultColumn(entry[0], str(entry[1])) for entry in connection.description or ()]
            yield Answer(columns, _rows(connection))


def write_file(
    store: Path, sql: str, output: Path, *, wait_s: float = 10.0, note: Callable[[str], None] = lambda _: None
) -> int:
    """Write the answer to a .csv, .parquet or .jsonl file, by DuckDB itself; the number of rows.

    The file appears as a whole. Raises BadInput for another ending, and what `ask` raises.
    """
    form = FILE_FORMATS.get(output.suffix)
    if form is None:
        raise BadInput(Problem("unknown kind of file", key="--output", value=str(output),
                               allowed="names that end in " + ", ".join(FILE_FORMATS)))  # fmt: skip
    if not output.absolute().parent.is_dir():
        raise BadInput(Problem("no such folder", str(output.parent), key="--output", value=str(output)))
    unfinished = output.with_name(f".{output.name}.part")
    with open_store(store, write=False, wait_s=wait_s, note=note) as connection:
        statement = _one_reading_statement(connection, sql)
        target = str(unfinished).replace("'", "''")
        try:
            with _sql_errors(connection, sql):
                copy = f"COPY (\n{statement.query.rstrip().rstrip(';')}\n) TO '{target}' ({form})"
                _interruptibly(connection, lambda: connection.execute(copy))
                rows = int(connection.fetchall()[0][0])
            unfinished.replace(output)
        finally:
            unfinished.unlink(missing_ok=True)
    return rows


def _interruptibly(connection: duckdb.DuckDBPyConnection, run: Callable[[], object]) -> None:
    """Run a statement so that Ctrl-C ends it: DuckDB looks at signals only now and then, the main thread always."""
    failed: list[BaseException] = []
    over = threading.Event()  # not Thread.join: one that Ctrl-C interrupts takes the thread for ended

    def work() -> None:
        try:
            run()
        except BaseException as error:
            failed.append(error)
        finally:
            over.set()

    threading.Thread(target=work, daemon=True).start()
    try:
        over.wait()
    except KeyboardInterrupt:
        connection.interrupt()
        over.wait(5.0)
        raise
    if failed:
        raise failed[0]


def _rows(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    while chunk := connection.fetchmany(_CHUNK):
        yield from chunk


def _one_reading_statement(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    with _sql_errors(connection, sql):
        statements = connection.extract_statements(sql)
    if len(statements) != 1:
        what = "there is no SQL in it" if not statements else f"{len(statements)} statements; one is taken at a time"
        raise BadInput(Problem(what, key="QUERY", value=sql.strip(), hint='campaign sql "FROM scaling"'))
    statement = statements[0]
    if not _reads_only(connection, statement):
        raise BadInput(
            Problem(
                f"{statement.type.name} is refused: the store is only read here",
                key="QUERY",
                value=sql.strip(),
                allowed="SELECT, FROM, WITH, VALUES, DESCRIBE, SHOW, SUMMARIZE, PIVOT, EXPLAIN",
                hint="campaign sql --output FILE.parquet QUERY   writes an answer to a file; to work on a copy of the "
                "store use the duckdb program",
            )
        )
    return statement


def _reads_only(connection: duckdb.DuckDBPyConnection, statement: duckdb.Statement) -> bool:
    """True for statements that change nothing, anywhere. EXPLAIN ANALYZE runs what it explains."""
    import duckdb

    if statement.type.name != "EXPLAIN":
        return statement.type.name in READING
    with contextlib.suppress(duckdb.Error):
        inner = connection.extract_statements(_EXPLAINED.sub("", statement.query, count=1))
        return len(inner) == 1 and inner[0].type.name in READING - {"EXPLAIN"}
    return False


@contextlib.contextmanager
def _sql_errors(connection: duckdb.DuckDBPyConnection, sql: str) -> Iterator[None]:
    """DuckDB's errors about a query as ours: its message with the place, and names that are near."""
    import duckdb

    try:
        yield
    except duckdb.InterruptException as error:
        raise KeyboardInterrupt from error
    except duckdb.OutOfMemoryException as error:
        raise CampaignError(Problem(f"the query needs more memory than the store may use: {error}",
                                    hint="ask for fewer rows or columns")) from error  # fmt: skip
    except duckdb.Error as error:
        message = str(error).strip()
        raise BadInput(Problem(message, key="QUERY", value=sql.strip(), hint=_hint(connection, message))) from error


def _hint(connection: duckdb.DuckDBPyConnection, message: str) -> str:
    """What to type next; with the nearest view or column when a name is unknown."""
    import duckdb

    listing = 'campaign sql "FROM docs"   lists all views and columns'
    found = _UNKNOWN_NAME.search(message)
    if found is None:
        return listing
    wanted = found["column"] or found["field"] or found["view"]
    with contextlib.suppress(duckdb.Error):
        rows = connection.execute('SELECT DISTINCT view, "column" FROM docs ORDER BY ALL').fetchall()
        places: dict[str, list[str]] = {}
        for view, column in rows:
            places.setdefault(view, [])
            if found["view"] is None:
                places.setdefault(column, []).append(view)
        names = {view for view, _ in rows} if found["view"] else {column for _, column in rows}
        near = difflib.get_close_matches(wanted.lower(), sorted(names), n=3, cutoff=0.6)
        if near:
            return f"nearest: {', '.join(_with_views(name, places[name]) for name in near)}; {listing}"
    return listing


def _with_views(name: str, views: list[str]) -> str:
    if not views:
        return name
    shown = ", ".join(views[:3]) + (", ..." if len(views) > 3 else "")
    return f"{name} (in {shown})"
