"""A fresh world for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A project with an empty ledger, no store and no records."""
    return World(tmp_path / "project")
