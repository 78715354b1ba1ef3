"""Rows of a query as text: aligned table, one block a row, CSV, JSON lines, Markdown; and as JSON values."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from datetime import time as day_time
from decimal import Decimal
from typing import Any, TextIO

import click

from campaign.cli.render import table, width
from campaign.store.query import ResultColumn

LONGEST_CELL = 60
SHORTEST_CELL = 12
_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
            "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL")  # fmt: skip


def json_value(value: Any, type_: str) -> Any:
    """A value as JSON has it: JSON columns as objects, times in ISO 8601 (UTC), NaN and infinities as words."""
    if type_ == "JSON" and isinstance(value, str):
        return json.loads(value)
    return _plain(value)


def _plain(value: Any) -> Any:  # noqa: PLR0911  one line a type
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value).replace("inf", "Infinity").replace("nan", "NaN")
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime):
        moment = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return f"{moment.isoformat()}Z"
    if isinstance(value, (date, day_time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def text(value: Any, type_: str, *, digits: int = 6) -> str:
    """A value for people: floats with `digits` significant digits, control characters visible."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    if isinstance(value, datetime):
        return str(_plain(value)).replace("T", " ").rstrip("Z")
    if isinstance(value, str):
        return "".join(char if char.isprintable() else repr(char)[1:-1] for char in value)
    plain = json_value(value, type_)
    return json.dumps(plain, ensure_ascii=False) if isinstance(plain, (dict, list)) else str(plain)


# -- for people ------------------------------------------------------------------------------------------------------


def as_table(columns: Sequence[ResultColumn], rows: Sequence[Sequence[Any]], screen: int | None = None) -> str | None:
    """An aligned table; None when it can't be made to fit `screen` columns (None: any width)."""
    cells = [[text(value, column.type) for value, column in zip(row, columns, strict=True)] for row in rows]
    names = [column.name for column in columns]
    limits = _limits(names, cells, screen)
    if limits is None:
        return None
    shown = [[_cell(value, cell, limit) for value, cell, limit in zip(row, line, limits, strict=True)]
             for row, line in zip(rows, cells, strict=True)]  # fmt: skip
    right = [index for index, column in enumerate(columns) if column.type.startswith(_NUMBERS)]
    return table(names, shown, right=right)


def _limits(names: Sequence[str], cells: Sequence[Sequence[str]], screen: int | None) -> list[int] | None:
    """Width of each column; text columns are cut until all fit."""
    widths = [max([width(name), *(width(line[index]) for line in cells)]) for index, name in enumerate(names)]
    if screen is None:
        return widths
    limits = [min(have, max(LONGEST_CELL, width(name))) for have, name in zip(widths, names, strict=True)]
    gaps = 2 * (len(names) - 1)
    while sum(limits) + gaps > screen:
        widest = max(range(len(limits)), key=lambda index: limits[index])
        floor = max(SHORTEST_CELL, width(names[widest]))
        if limits[widest] <= floor:
            return None
        limits[widest] = max(floor, limits[widest] - (sum(limits) + gaps - screen))
    return limits


def _cell(value: Any, shown: str, limit: int) -> str:
    if width(shown) > limit:
        while width(shown) > limit - 1:
            shown = shown[:-1]
        shown += "…"
    return click.style(shown, dim=True) if value is None else shown


def as_expanded(columns: Sequence[ResultColumn], rows: Iterable[Sequence[Any]]) -> str:
    """One block of `name  value` lines for each row: for answers that are too wide for a table."""
    widest = max((width(column.name) for column in columns), default=0)
    blocks = []
    for number, row in enumerate(rows, start=1):
        lines = [click.style(f"row {number}", bold=True)]
        for column, value in zip(columns, row, strict=True):
            pad = " " * (widest - width(column.name))
            lines.append(f"  {column.name}{pad}  {_cell(value, text(value, column.type), 1 << 30)}")
        blocks.append("\n".join(lines))
    return "\n".join(blocks)


def as_markdown(columns: Sequence[ResultColumn], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table; NULL is an empty cell."""
    marks = ["---:" if column.type.startswith(_NUMBERS) else "---" for column in columns]
    lines = [[column.name for column in columns], marks]
    lines += [
        ["" if value is None else text(value, column.type) for value, column in zip(row, columns, strict=True)]
        for row in rows
    ]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


# -- for programs ----------------------------------------------------------------------------------------------------


def write_csv(columns: Sequence[ResultColumn], rows: Iterable[Sequence[Any]], out: TextIO) -> None:
    """CSV with a header (RFC 4180, lines end in \\n); NULL is an empty field, an empty text is `""`."""
    out.write(",".join(_csv_text(column.name) for column in columns) + "\n")
    types = [column.type for column in columns]
    for row in rows:
        out.write(",".join(_csv_field(value, type_) for value, type_ in zip(row, types, strict=True)) + "\n")


def _csv_field(value: Any, type_: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _csv_text(value)
    if isinstance(value, float):
        return repr(value)
    plain = json_value(value, type_)
    return _csv_text(json.dumps(plain, ensure_ascii=False) if isinstance(plain, (dict, list)) else str(plain))


def _csv_text(field: str) -> str:
    """Quoted where the format needs it, and when empty: that tells it from NULL."""
    if field and not any(char in field for char in ',"\r\n'):
        return field
    return '"' + field.replace('"', '""') + '"'


def write_jsonl(columns: Sequence[ResultColumn], rows: Iterable[Sequence[Any]], out: TextIO) -> None:
    """One JSON object a row."""
    for row in rows:
        entry = {column.name: json_value(value, column.type) for value, column in zip(row, columns, strict=True)}
        out.write(json.dumps(entry, ensure_ascii=False) + "\n")
