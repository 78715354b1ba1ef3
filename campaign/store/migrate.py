"""The store's schema: numbered migrations, the views on top of them, and the `docs` view."""

from __future__ import annotations

import csv
import hashlib
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from campaign import __version__
from campaign.errors import BadInput, Problem
from campaign.tables import EPOCHS, STEPS, WINDOWS

if TYPE_CHECKING:
    import duckdb


class Doc(NamedTuple):
    """What the `docs` view says of one column."""

    view: str
    column: str
    unit: str
    meaning: str


@cache
def _file(name: str) -> str:
    return resources.files("campaign.store").joinpath("schema", name).read_text(encoding="utf-8")


@cache
def migrations() -> tuple[tuple[int, str], ...]:
    """(version, SQL file name) in order."""
    folder = resources.files("campaign.store").joinpath("schema")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name[:4].isdigit() and entry.name.endswith(".sql"))
    return tuple((int(name[:4]), name) for name in names)


def newest_version() -> int:
    """The schema version that this campaign knows."""
    return migrations()[-1][0]


@cache
def docs() -> tuple[Doc, ...]:
    """Unit and meaning of every column of every view; those of record tables come from `campaign.tables`."""
    from_tables = [
        Doc(view, column.name, column.unit, column.meaning)
        for view, columns in (("epochs", EPOCHS), ("steps", STEPS), ("windows", WINDOWS))
        for column in columns
    ]
    return tuple([Doc(**row) for row in csv.DictReader(_file("docs.csv").splitlines())] + from_tables)


@cache
def _views_digest() -> str:
    """Changes whenever views or docs change."""
    return hashlib.sha256(repr((_file("views.sql"), docs())).encode()).hexdigest()


def version_of(connection: duckdb.DuckDBPyConnection, path: Path) -> int:
    """Schema version of an open store; 0 for an empty database. Raises BadInput for a database of somebody else."""
    tables = {
        (schema, table)
        for schema, table in connection.execute(
            "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = current_database()"
        ).fetchall()
    }
    if ("data", "schema_version") in tables:
        [(version,)] = connection.execute("SELECT coalesce(max(version), 0) FROM data.schema_version").fetchall()
        return int(version)
    if tables:
        some = ", ".join(sorted(name for _, name in tables)[:3])
        raise BadInput(
            Problem(f"a DuckDB file, but not a store of campaign: it holds {some}", str(path),
                    hint="name another file with --store")
        )  # fmt: skip
    return 0


def check_version(connection: duckdb.DuckDBPyConnection, path: Path) -> int:
    """Version of a store that this campaign can read. Raises BadInput when a newer one has written it."""
    version = version_of(connection, path)
    if version > newest_version():
        raise BadInput(
            Problem(
                f"the store has schema {version}, this campaign knows {newest_version()}",
                str(path),
                hint="pip install -U campaign   for the version that wrote it, or make the store anew with this one: "
                "campaign collect --rebuild",
            )
        )
    return version


def is_current(connection: duckdb.DuckDBPyConnection, path: Path) -> bool:
    """True when neither a migration nor new views are due."""
    if check_version(connection, path) < newest_version():
        return False
    return fact(connection, "views") == _views_digest()


def migrate(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Bring the store up to this version's schema and views, in one transaction. Raises BadInput for a newer store."""
    version = check_version(connection, path)
    if version == newest_version() and fact(connection, "views") == _views_digest():
        return
    connection.execute("BEGIN")
    for number, name in migrations():
        if number > version:
            connection.execute(_file(name))
            connection.execute(
                "INSERT INTO data.schema_version VALUES (?, ?, ?)",
                [number, datetime.now(UTC).replace(tzinfo=None), __version__],
            )
    connection.execute(_file("views.sql"))
    _fill_docs(connection)
    set_fact(connection, "views", _views_digest())
    connection.execute("COMMIT")


def _fill_docs(connection: duckdb.DuckDBPyConnection) -> None:
    """Write the `docs` table; types are those the views really have."""
    rows = docs()
    connection.execute("DELETE FROM data.docs")
    connection.execute(
        """
        INSERT INTO data.docs
        SELECT d.view, d.name, c.data_type, d.unit, d.meaning
        FROM (SELECT unnest(?::VARCHAR[]) AS view, unnest(?::VARCHAR[]) AS name, unnest(?::VARCHAR[]) AS unit,
                     unnest(?::VARCHAR[]) AS meaning) d
        JOIN duckdb_columns() c ON c.database_name = current_database() AND c.schema_name = 'main'
          AND c.table_name = d.view AND c.column_name = d.name
        ORDER BY c.table_name, c.column_index
        """,
        [[doc[part] for doc in rows] for part in range(4)],
    )


def fact(connection: duckdb.DuckDBPyConnection, key: str) -> str | None:
    """One fact about the store itself; None when it isn't known."""
    rows = connection.execute("SELECT value FROM data.facts WHERE key = ?", [key]).fetchall()
    return str(rows[0][0]) if rows else None


def set_fact(connection: duckdb.DuckDBPyConnection, key: str, value: str) -> None:
    """Remember one fact about the store."""
    connection.execute("DELETE FROM data.facts WHERE key = ?", [key])
    connection.execute("INSERT INTO data.facts VALUES (?, ?)", [key, value])
