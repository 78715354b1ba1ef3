"""How far a long plan has come, said to whoever wants to show it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

Progress = Callable[[str, int, int, str], None]
"""(what is done, how many, of how many, of what)."""
EVERY = 500
"""Items between two calls."""


def silent(what: str, done: int, total: int, noun: str) -> None:
    """Nobody wants to know."""


def counted(items: Sequence[T], progress: Progress, what: str, noun: str) -> Iterator[T]:
    """The items, with a word now and then of how many are behind."""
    for index, item in enumerate(items):
        if index % EVERY == 0:
            progress(what, index, len(items), noun)
        yield item
