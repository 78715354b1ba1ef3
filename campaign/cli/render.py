"""Plain tables and durations for commands that must start fast (no rich)."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import click

STATE_COLOURS = {
    "done": "green",
    "running": "cyan",
    "queued": "blue",
    "submitting": "blue",
    "failed": "red",
    "timeout": "red",
    "lost": "red",
    "interrupted": "yellow",
    "cancelled": "yellow",
    "unknown": "magenta",
}


def width(text: str) -> int:
    """Columns a text takes on a terminal: wide characters count two, combining ones none."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in click.unstyle(text)
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """Aligned columns, two spaces apart; columns in `right` are right-aligned."""
    cells = [list(header), *[list(row) for row in rows]]
    widths = [max(width(row[column]) for row in cells) for column in range(len(header))]

    def line(row: Sequence[str]) -> str:
        parts = []
        for column, cell in enumerate(row):
            pad = " " * (widths[column] - width(cell))
            parts.append(pad + cell if column in right else cell + pad)
        return "  ".join(parts).rstrip()

    return "\n".join([click.style(line(header), bold=True), *[line(row) for row in rows]])


def duration(seconds: float | None) -> str:
    """`42 s`, `3 min 5 s`, `2 h 10 min`, `3 d 4 h`; a dash for None."""
    if seconds is None:
        return "-"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def state(name: str) -> str:
    """A run state in its colour."""
    return click.style(name, fg=STATE_COLOURS.get(name))
