"""A fresh world for each test."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from campaign.store.collect import collect
from tests.store.world import World


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store without runs: making tables and views takes longer than copying them."""
    world = World(tmp_path_factory.mktemp("empty"))
    collect(world, world.store)
    return world.store


@pytest.fixture
def world(tmp_path: Path, empty_store: Path) -> World:
    """A project with an empty ledger, an empty store and no records."""
    world = World(tmp_path / "project")
    shutil.copy(empty_store, world.store)
    return world
