"""Numbers from programs that don't use the Recorder: regular expressions over rank 0's output, and JSON lines."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

READ_BYTES = 64 << 10
LINE_BYTES = 1 << 16
BEFORE_BYTES = 256


@dataclass(frozen=True, slots=True)
class Value:
    """One number: what it is called, in what unit, at which step (None: at none)."""

    name: str
    value: float
    unit: str = ""
    step: int | None = None
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pattern:
    """One entry of a study's `metrics`: {name, unit, regex with (?P<value>) and (?P<step>)}."""

    name: str
    unit: str
    regex: re.Pattern[str]

    def values(self, text: str) -> Iterable[Value]:
        """Every match in a block of whole lines; `^` and `$` match at the ends of lines."""
        for match in self.regex.finditer(text):
            groups = match.groupdict()
            value = _number(groups.get("value"))
            if value is not None:
                step = _number(groups.get("step"))
                yield Value(self.name, value, self.unit, None if step is None or not step.is_integer() else int(step))


def patterns(metrics: Sequence[Mapping[str, Any]]) -> list[Pattern]:
    """The regular expressions among a study's metrics (the study file has been checked when it was planned)."""
    return [
        Pattern(str(entry["name"]), str(entry.get("unit") or ""), re.compile(entry["regex"], re.MULTILINE))
        for entry in metrics
        if entry.get("regex")
    ]


def jsonl_paths(metrics: Sequence[Mapping[str, Any]], project_dir: Path) -> list[Path]:
    """The JSON-lines files among a study's metrics; relative paths begin at the ranks' working directory."""
    return [project_dir / str(entry["jsonl"]) for entry in metrics if entry.get("jsonl")]


class LineMatcher:
    """Applies patterns to a stream, block by block of whole lines."""

    def __init__(self, matchers: Sequence[Pattern]) -> None:
        self._matchers = matchers
        self._open = b""

    def feed(self, data: bytes) -> list[Value]:
        """The values in the lines that `data` completes."""
        if not self._matchers:
            return []
        block, newline, rest = (self._open + data).rpartition(b"\n")
        # a line without end is looked at in pieces: it must not grow in memory
        self._open = rest if len(rest) <= LINE_BYTES else rest[-LINE_BYTES:]
        return self._match(block) if newline else []

    def end(self) -> list[Value]:
        """The values in the last line when it has no newline."""
        data, self._open = self._open, b""
        return self._match(data)

    def _match(self, block: bytes) -> list[Value]:
        text = block.decode("utf-8", "replace").replace("\r\n", "\n")
        return [value for matcher in self._matchers for value in matcher.values(text)]


class JsonLines:
    """Follows a file of JSON lines `{"name", "value", "unit", "step"}`; what isn't such a line is counted."""

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        """`from_end`: what the file holds now is of an earlier run."""
        self._path = path
        self._offset = 0
        self._before = b""
        """The bytes before the offset: another run's file, or a file begun anew, has others."""
        self._changed_ns = 0
        self.bad_lines = 0
        if from_end:
            with contextlib.suppress(OSError), path.open("rb") as file:
                self._keep(file, file.seek(0, os.SEEK_END))

    def read(self, *, final: bool = False) -> list[Value]:
        """The values of the lines that have come; with `final`, of a last line without newline too."""
        try:
            with self._path.open("rb") as file:
                if self._begun_anew(file):
                    self._offset = 0
                file.seek(self._offset)
                data = file.read(READ_BYTES)
                whole = final or (len(data) == READ_BYTES and b"\n" not in data)
                end = len(data) if whole else data.rfind(b"\n") + 1
                self._keep(file, self._offset + end)
        except OSError:
            return []
        values: list[Value] = []
        for line in data[:end].splitlines():
            if line.strip():
                values += self._parse(line)
        return values

    def _begun_anew(self, file: BinaryIO) -> bool:
        state = os.fstat(file.fileno())
        if state.st_size < self._offset:
            return True
        if state.st_size == self._offset:
            # as long as before, but written since: the same lines once more, not more lines
            return state.st_mtime_ns != self._changed_ns
        file.seek(self._offset - len(self._before))
        return file.read(len(self._before)) != self._before

    def _keep(self, file: BinaryIO, offset: int) -> None:
        self._offset = offset
        start = max(0, offset - BEFORE_BYTES)
        file.seek(start)
        self._before = file.read(offset - start)
        self._changed_ns = os.fstat(file.fileno()).st_mtime_ns

    def _parse(self, line: bytes) -> list[Value]:
        try:
            data = json.loads(line)
            value, step = _number(data["value"]), data.get("step")
            if value is None:
                raise ValueError(line)
            labels = {str(key): str(label) for key, label in (data.get("labels") or {}).items()}
            return [
                Value(
                    str(data["name"]), value, str(data.get("unit") or ""), None if step is None else int(step), labels
                )
            ]
        except (ValueError, TypeError, KeyError, AttributeError):
            self.bad_lines += 1
            return []


def _number(value: Any) -> float | None:
    if value is None or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
