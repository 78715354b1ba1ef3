"""Short names of lines: only what tells one line from the next."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

Key = tuple[str, str, str, str | None]
"""(site, study, series, strategy)"""


def series_items(series: str) -> dict[str, str]:
    """The axes and parameters of a series: a JSON object, or `key=value` separated by commas, blanks or semicolons.

    Empty for text of another form (then the series is its own name).
    """
    try:
        parsed = json.loads(series)
    except ValueError:
        parsed = None
    if isinstance(parsed, dict):
        return {str(key): value if isinstance(value, str) else json.dumps(value) for key, value in parsed.items()}
    parts = [part for part in re.split(r"[,;\s]+", series) if part]
    if not parts or not all("=" in part for part in parts):
        return {}
    return dict(part.split("=", 1) for part in parts)


def line_names(keys: Iterable[Key], *, keep_strategy: bool = False, keep_site: bool = False) -> dict[Key, str]:
    """A name per line, unique within a study: site if several, strategy if several, then what differs in the series.

    `keep_site`: the site is named even when there is one. `keep_strategy`: the site never (tables have a column for
    it), the strategy always.
    """
    keys = sorted(set(keys), key=lambda key: tuple(part or "" for part in key))
    names = dict[Key, str]()
    for study in sorted({key[1] for key in keys}):
        names.update(_names_of_study([key for key in keys if key[1] == study], keep_strategy, keep_site))
    return names


def _names_of_study(keys: list[Key], keep_strategy: bool, keep_site: bool) -> dict[Key, str]:
    items = {key: series_items(key[2]) for key in keys}
    with_site = not keep_strategy and (keep_site or len({key[0] for key in keys}) > 1)
    with_strategy = keep_strategy or len({key[3] for key in keys}) > 1
    differing = [
        name
        for name in dict.fromkeys(name for values in items.values() for name in values if name != "strategy")
        if len({values.get(name) for values in items.values()}) > 1
    ]
    names = dict[Key, str]()
    for key in keys:
        site, _, series, strategy = key
        parts = [site] if with_site else []
        if with_strategy and strategy:
            parts.append(strategy)
        parts += [f"{name}={items[key][name]}" for name in differing if name in items[key]]
        names[key] = printable(" · ".join(parts) or strategy or series or site)
    return _told_apart(names, with_site)


def _told_apart(names: dict[Key, str], with_site: bool) -> dict[Key, str]:
    """Series of an unknown form may still share a name: then the whole series is added."""

    def scope(key: Key) -> tuple[str, str]:
        return ("" if with_site else key[0], names[key])

    counts = dict[tuple[str, str], int]()
    for key in names:
        counts[scope(key)] = counts.get(scope(key), 0) + 1
    return {key: name if counts[scope(key)] == 1 else printable(f"{name} · {key[2]}") for key, name in names.items()}


def printable(text: str) -> str:
    """The text on one line, control characters as escapes."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
