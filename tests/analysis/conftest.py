"""Figures of each shape are drawn once and looked at by many tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import duckdb
import pytest

from analysis import style
from analysis.choice import Choice
from analysis.figures import Drawing, draw
from tests.analysis.answers_store import memory_store
from tests.analysis.shapes import SHAPES
from tests.store.conftest import empty_store, world

__all__ = ["empty_store", "world"]

Drawn = Callable[[str, str], Drawing]


@pytest.fixture(scope="session")
def stores() -> Iterator[Callable[[str], duckdb.DuckDBPyConnection]]:
    """The store of a shape."""
    made: dict[str, duckdb.DuckDBPyConnection] = {}

    def store(shape: str) -> duckdb.DuckDBPyConnection:
        if shape not in made:
            made[shape] = memory_store(SHAPES[shape]())
        return made[shape]

    yield store
    for connection in made.values():
        connection.close()


@pytest.fixture(scope="session")
def drawn(stores: Callable[[str], duckdb.DuckDBPyConnection]) -> Drawn:
    """A figure of a shape; raises what drawing raises."""
    made: dict[tuple[str, str], Drawing] = {}

    def drawing(name: str, shape: str) -> Drawing:
        if (name, shape) not in made:
            with style.look():
                made[name, shape] = draw(name, stores(shape), Choice())
        return made[name, shape]

    return drawing
