"""Small words for messages."""

from __future__ import annotations


def count(number: int, noun: str, plural: str | None = None) -> str:
    """`1 run`, `3 runs`, `1,000 runs`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
