"""From axes to points: product in the study's order, zips, exclude, conditional values. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from campaign.errors import BadInput, Problem
from campaign.study import Study

MAX_RUNS = 1_000_000


@dataclass(frozen=True, slots=True)
class Point:
    """One combination of axis values, and the parameters that go with it (axis values among them)."""

    axes: dict[str, Any]
    params: dict[str, Any]


def points(study: Study) -> list[Point]:
    """All points, in the study's order: the last axis varies fastest. Raises `BadInput` when none is left."""
    dimensions = [[{name: value} for value in values] for name, values in study.axes.items()]
    dimensions += [_zipped(group) for group in study.zip]
    count = math.prod(len(dimension) for dimension in dimensions)
    if count * study.repeats > MAX_RUNS:
        path = ("axes",) if count > MAX_RUNS else ("repeats",)
        message = f"the study would make {count * study.repeats} runs: {count} points x {study.repeats} repeats"
        raise BadInput(study.problem(path, message, value=count * study.repeats, allowed=f"at most {MAX_RUNS}"))
    found = []
    for parts in itertools.product(*dimensions):
        axes = {name: value for part in parts for name, value in part.items()}
        if not any(_matches(entry, axes) for entry in study.exclude):
            found.append(Point(axes, _params(study, axes)))
    if not found:
        message = f"`exclude` leaves no point of study `{study.name}`, so it would make no run"
        raise BadInput(study.problem(("exclude",), message, hint="remove an entry, or add values to the axes"))
    return found


def barren(study: Study, found: list[Point]) -> Iterator[Problem]:
    """Axis values that `exclude` leaves without any point."""
    for name, path in study.axis_paths().items():
        values = study.axes[name] if path[0] == "axes" else study.zip[int(path[1])][name]
        used = {repr(point.axes[name]) for point in found}
        for value in values:
            if repr(value) not in used:
                message = f"axis `{name}`: {value!r} makes no run, `exclude` takes all its points"
                yield study.problem(path, message, value=value)


def _zipped(group: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(group, values, strict=True)) for values in zip(*group.values(), strict=True)]


def _matches(condition: dict[str, Any], values: dict[str, Any]) -> bool:
    return all(name in values and values[name] == wanted for name, wanted in condition.items())


def _params(study: Study, axes: dict[str, Any]) -> dict[str, Any]:
    params = {**study.params, **axes}
    for rule in study.when:
        if _matches(rule.if_, params):
            params.update(rule.set)
    return params
