"""A study as it is on one site: study < study.sites.<site> < site.studies.<study> (axis values only) < `--set`.

The layers are merged as data and then validated as one study, so that every rule holds for the result and every error
names the file and line of the layer that it comes from.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from campaign.errors import BadInput
from campaign.plan.overrides import BY_KEY, resolve
from campaign.site import Site
from campaign.study import Study
from campaign.validate import Source, validate
from campaign.yamlfile import KeyPath


class _CommandLine:
    """`--set` as the source of values."""

    data: Mapping[str, Any] = {}

    def place(self, path: KeyPath) -> tuple[str, int | None]:
        return "--set", None


class Merged:
    """Values from several sources; `place` asks the source that a value came from."""

    def __init__(self, base: Source, data: dict[str, Any]) -> None:
        self.base = base
        self.data = data
        self._moved: dict[KeyPath, tuple[Any, KeyPath]] = {}

    def place(self, path: KeyPath) -> tuple[str, int | None]:
        for length in range(len(path), 0, -1):
            if path[:length] in self._moved:
                source, start = self._moved[path[:length]]
                place: tuple[str, int | None] = source.place((*start, *path[length:]))
                return place
        return self.base.place(path)

    def put(self, path: KeyPath, value: Any, source: Any, source_path: KeyPath) -> None:
        """Replace the value at `path`, making mappings on the way."""
        target = self.data
        for part in path[:-1]:
            if not isinstance(target.get(str(part)), dict):
                target[str(part)] = {}
            target = target[str(part)]
        target[str(path[-1])] = value
        self._moved[path] = (source, source_path)


def merge(study: Study, site: Site, overrides: Mapping[str, Any]) -> Study:
    """The study on this site. `overrides`: `--set` by key; text is read as YAML. Raises `BadInput`."""
    data = copy.deepcopy(study.source.data)
    # the blocks stay in the data: names of axes that only other sites have must not look like mistakes here
    blocks = data.get("sites") or {}
    merged = Merged(study.source, data)
    for key, value in (blocks.get(site.name) or {}).items():
        _put_block(merged, study, site.name, key, value)
    for axis, values in (site.source.data.get("studies") or {}).get(study.name, {}).items():
        merged.put(("axes", axis), copy.deepcopy(values), site.source, ("studies", study.name, axis))
    problems = []
    for key, value in overrides.items():
        try:
            path, found = resolve(merged.data, key, value)
            merged.put(path, found, _CommandLine(), path)
        except BadInput as error:
            problems += error.problems
    if problems:
        raise BadInput(problems)
    return validate(merged, Study)


def _put_block(merged: Merged, study: Study, site: str, key: str, value: Any) -> None:
    start: KeyPath = ("sites", site, key)
    if key == "data":
        for name, item in value.items():
            if name == "options" and isinstance(item, dict):
                for option, given in item.items():
                    merged.put(("data", "options", option), given, study.source, (*start, "options", option))
            else:
                merged.put(("data", name), item, study.source, (*start, name))
    elif key in BY_KEY:
        for name, item in value.items():
            merged.put((key, name), item, study.source, (*start, name))
    elif value is not None:
        merged.put((key,), value, study.source, start)
