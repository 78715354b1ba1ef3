"""Short names of lines: only what tells one line from the next."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

Key = tuple[str, str, str, str | None]
"""(site, study, series, strategy)"""


_ITEM = re.compile(r"\s+(?=[^\s=]+=)|\s+(?=#[0-9a-f]{6}\b)")
DIGEST = "#"
"""Item of a series that stands for all parameters that are no axis."""
BATCH_KEYS = ("global_batch", "local_batch")


def series_items(series: str) -> dict[str, str]:
    """The items of a series such as `strategy=ddp hidden=64 #1a2b3c global_batch=256`, in their order.

    Text that is neither `key=value` nor the digest keeps its own name as key.
    """
    items = {}
    for part in _ITEM.split(series.strip()):
        key, equals, value = part.partition("=")
        if part.startswith(DIGEST):
            items[DIGEST] = part
        elif part:
            items[key if equals else part] = value
    return items


def line_names(
    keys: Iterable[Key],
    *,
    keep_strategy: bool = False,
    keep_site: bool = False,
    params: Mapping[Key, Mapping[str, Any]] | None = None,
) -> dict[Key, str]:
    """A name per line, unique within a study: site if several, strategy if several, then what differs in the series.

    `keep_site`: the site is named even when there is one. `keep_strategy`: the site never (tables have a column for
    it), the strategy always. `params`: a run's parameters per line; where the series differ only in the digest of the
    parameters, those that differ are named instead.
    """
    keys = sorted(set(keys), key=lambda key: tuple(part or "" for part in key))
    names = dict[Key, str]()
    for study in sorted({key[1] for key in keys}):
        here = [key for key in keys if key[1] == study]
        names.update(_names_of_study(here, keep_strategy, keep_site, params or {}))
    return names


def _names_of_study(
    keys: list[Key], keep_strategy: bool, keep_site: bool, params: Mapping[Key, Mapping[str, Any]]
) -> dict[Key, str]:
    with_site = not keep_strategy and (keep_site or len({key[0] for key in keys}) > 1)
    with_strategy = keep_strategy or len({key[3] for key in keys}) > 1
    items = {key: series_items(key[2]) for key in keys}
    axes = {key: {n: v for n, v in items[key].items() if n not in ("strategy", DIGEST)} for key in keys}
    parts = dict[Key, list[str]]()
    for key in keys:
        site, _, _, strategy = key
        parts[key] = ([site] if with_site else []) + ([strategy] if with_strategy and strategy else [])
    _add_differing(parts, axes, keys)
    for more in ({key: _flat(params.get(key, {})) for key in keys}, items):
        for group in _same(parts, by_site=not with_site):
            _add_differing(parts, more, group)
    return {key: printable(" · ".join(found) or key[3] or key[2] or key[0]) for key, found in parts.items()}


def _same(parts: dict[Key, list[str]], *, by_site: bool) -> list[list[Key]]:
    """Lines that still share a name."""
    groups = dict[tuple[str, ...], list[Key]]()
    for key, found in parts.items():
        groups.setdefault((key[0] if by_site else "", *found), []).append(key)
    return [group for group in groups.values() if len(group) > 1]


def _add_differing(parts: dict[Key, list[str]], items: Mapping[Key, Mapping[str, str]], group: list[Key]) -> None:
    """Append the items whose values differ within the group to the names of its lines."""
    for name in dict.fromkeys(name for key in group for name in items[key]):
        if len({items[key].get(name) for key in group}) > 1:
            for key in group:
                if name in items[key]:
                    parts[key].append(_item(name, items[key][name]))


def _item(name: str, value: str) -> str:
    return value if name == DIGEST else f"{name}={value}" if value else name


def _flat(params: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in params.items()
        if name not in BATCH_KEYS
    }


def printable(text: str) -> str:
    """The text on one line, control characters as escapes."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
