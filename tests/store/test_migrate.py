"""Schema versions: an older store is brought up to date in one transaction, or stays as it was."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from campaign.errors import BadInput
from campaign.store import migrate
from campaign.store.collect import collect
from campaign.store.db import open_store
from tests.store.world import World


@pytest.fixture
def second_migration(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A migration 0002 that the tests write; its SQL is the value of `sql`."""
    text = {"sql": "ALTER TABLE data.runs ADD COLUMN colour VARCHAR DEFAULT 'red'"}
    real = migrate._file
    monkeypatch.setattr(migrate, "migrations", lambda: ((1, "0001_initial.sql"), (2, "0002_colour.sql")))
    monkeypatch.setattr(migrate, "_file", lambda name: text["sql"] if name == "0002_colour.sql" else real(name))
    return text


def versions(store: Path) -> list[int]:
    """Versions that the store went through."""
    with duckdb.connect(str(store), read_only=True) as connection:
        return [row[0] for row in connection.execute("SELECT version FROM data.schema_version ORDER BY 1").fetchall()]


def test_migrations_are_numbered_from_one_without_gaps() -> None:
    assert [number for number, _ in migrate.migrations()] == list(range(1, migrate.newest_version() + 1))


@pytest.mark.parametrize("write", [True, False])
def test_an_older_store_is_migrated_when_it_is_opened(
    world: World, second_migration: dict[str, str], write: bool
) -> None:
    assert versions(world.store) == [1]
    with open_store(world.store, write=write) as connection:
        assert connection.execute("SELECT count(colour) FROM data.runs").fetchall() == [(0,)]
    assert versions(world.store) == [1, 2]


def test_a_new_store_goes_through_all_migrations(world: World, second_migration: dict[str, str]) -> None:
    world.store.unlink()
    collect(world, world.store)
    assert versions(world.store) == [1, 2]


def test_a_migration_that_fails_changes_nothing(world: World, second_migration: dict[str, str]) -> None:
    world.measured("r")
    second_migration["sql"] = "CREATE TABLE data.half AS SELECT 1; SELECT no_such_column FROM data.runs"
    with pytest.raises(duckdb.BinderException):
        collect(world, world.store)
    assert versions(world.store) == [1]
    with duckdb.connect(str(world.store), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'half'").fetchall() == [(0,)]


def test_a_newer_store_is_not_touched(
    world: World, second_migration: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(world.store, write=True):
        pass
    before = world.store.read_bytes()
    monkeypatch.setattr(migrate, "migrations", lambda: ((1, "0001_initial.sql"),))
    for write in (True, False):
        with pytest.raises(BadInput, match="schema 2, this campaign knows 1"), open_store(world.store, write=write):
            pass
    assert world.store.read_bytes() == before


def test_a_store_that_may_not_be_written_is_read_with_its_old_views(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group member's store, after an update of campaign."""
    with open_store(world.store, write=True) as connection:
        connection.execute("UPDATE data.facts SET value = 'older' WHERE key = 'views'")
    monkeypatch.setattr("campaign.store.db.os.access", lambda *_: False)  # root may write everything
    with open_store(world.store, write=False) as connection:
        assert connection.execute("FROM scaling").fetchall() == []
        assert migrate.fact(connection, "views") == "older"
