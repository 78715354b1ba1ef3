"""Is it the same work? What a reader must know before comparing two sites' times."""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from analysis.rows import RunPoint, ScalingRow

BATCH_KEYS = {"global_batch", "local_batch", "batch"}


def describe(points: Sequence[RunPoint]) -> str:
    """Workload, kind of scaling batch: `hydrology, global batch 256`."""
    parts = []
    workloads = sorted({_short(point.workload) for point in points if point.workload})
    if workloads:
        parts.append(", ".join(workloads))
    for name, values in (
        ("global batch", {point.global_batch for point in points}),
        ("batch per rank", {point.local_batch for point in points}),
    ):
        if len(values) == 1 and None not in values:
            parts.append(f"{name} {next(iter(values))}")
    return ", ".join(parts)


def compare(points: Sequence[RunPoint], rows: Sequence[ScalingRow]) -> tuple[bool, str]:
    """Whether the runs of several sites did the same work, and the sentence that says so.

    Compared per site: workload (and a command's arguments), distinct samples per epoch, batch, every other parameter. A
    batch that varies with the world size in the same way everywhere is the same work.
    """
    sites = sorted({point.site for point in points})
    facts: dict[str, dict[str, str]] = {
        "workload": {
            site: _join(_short(p.workload) for p in points if p.site == site and p.workload) for site in sites
        },
        "arguments": {site: _join(_arguments(p.workload) for p in points if p.site == site) for site in sites},
        "distinct samples per epoch": {
            site: _join(str(r.samples_unique) for r in rows if r.site == site and r.samples_unique) for site in sites
        },
        "batch": {site: _batch([p for p in points if p.site == site]) for site in sites},
    }
    keys = sorted({key for point in points for key in point.params if key not in BATCH_KEYS})
    for key in keys:
        facts[key] = {site: _join(_value(p.params.get(key)) for p in points if p.site == site) for site in sites}
    different = {name: values for name, values in facts.items() if len(set(values.values())) > 1}
    if different:
        listed = "; ".join(
            name + " " + ", ".join(f"{value or 'not known'} ({site})" for site, value in values.items())
            for name, values in list(different.items())[:3]
        )
        more = f"; and {len(different) - 3} more" if len(different) > 3 else ""
        return False, f"NOT the same work on all sites: {listed}{more}. Compare shapes, not times."
    same = [values[sites[0]] for name, values in facts.items() if name == "workload" and values[sites[0]]]
    samples = facts["distinct samples per epoch"][sites[0]]
    same += [f"{samples} distinct samples per epoch" if samples else "samples per epoch not recorded"]
    same += [facts["batch"][sites[0]]] if facts["batch"][sites[0]] else []
    same += [f"{len(keys)} equal parameters"] if keys else []
    return True, f"The same work on every site: {', '.join(same)}."


def _batch(points: Iterable[RunPoint]) -> str:
    points = list(points)
    for name, values in (
        ("global batch", {point.global_batch for point in points}),
        ("batch per rank", {point.local_batch for point in points}),
    ):
        if len(values) == 1 and None not in values:
            return f"{name} {next(iter(values))}"
    return "" if all(p.global_batch is None and p.local_batch is None for p in points) else "batch varies"


_INTERPRETER = re.compile(r"(python|pypy)[\d.]*|(ba|da|k|z)?sh|julia|Rscript")
_WITH_VALUE = ("-W", "-X")
"""Options of Python that take the next word."""


def _short(workload: str | None) -> str:
    """`training.workloads.hydrology` is `hydrology`; a command is its script, its module or its program's base name."""
    argv = _argv(workload)
    return (workload or "").rsplit(".", 1)[-1] if argv is None else _program(argv)[0]


def _arguments(workload: str | None) -> str:
    """What a command hands to its program, or `none`; empty for a workload."""
    argv = _argv(workload)
    return "" if argv is None else shlex.join(_program(argv)[1]) or "none"


def _argv(workload: str | None) -> list[str] | None:
    """A command's words: the store has them as a JSON list. None for a workload's entry point."""
    if not (workload or "").startswith("["):
        return None
    try:
        words = json.loads(workload or "")
    except ValueError:
        return None
    return [str(word) for word in words] or None


def _program(argv: list[str]) -> tuple[str, list[str]]:
    """(name, arguments): of `python -u train.py --lr 1` they are `train.py` and `--lr 1`."""
    first = posixpath.basename(argv[0]) or argv[0]
    words = argv[1:]
    if not _INTERPRETER.fullmatch(first):
        return first, words
    while words and words[0].startswith("-"):
        option, *words = words
        if option == "-m" and words:
            return words[0], words[1:]
        if option == "-c":
            break
        if option in _WITH_VALUE:
            words = words[1:]
    else:
        if words:
            return posixpath.basename(words[0]) or words[0], words[1:]
    return first, argv[1:]


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _join(values: Iterable[str]) -> str:
    return ", ".join(sorted(set(values)))
