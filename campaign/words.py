"""Small words for messages."""

from __future__ import annotations


def count(number: int, noun: str, plural: str | None = None) -> str:
    """`1 run`, `3 runs`, `1,000 runs`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def amount(value: float) -> str:
    """Four significant digits without an exponent: `0.3333`, `45`, `12,960`."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
