"""YAML files, read by the YAML 1.2 core schema, with line numbers; everything else is refused.

The syntax is ruamel.yaml's (its pure-Python event parser). What a plain scalar means is decided here, by the regular
expressions of YAML 1.2.2 section 10.3.2, because YAML 1.1 readers turn `10:00` into 600, `no` into False and `1e-3`
into a string. Duplicate keys, tags that build objects, merge keys and more than one document are errors; aliases are
expanded up to a bound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from campaign.errors import BadInput, Problem

MAX_BYTES = 8 * 1024 * 1024
MAX_NODES = 100_000
MAX_DEPTH = 64

KeyPath = tuple[str | int, ...]

_NULL = re.compile(r"null|Null|NULL|~|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+")
_OCT = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INF = re.compile(r"[-+]?(\.inf|\.Inf|\.INF)")
_NAN = re.compile(r"\.nan|\.NaN|\.NAN")
_CORE = "tag:yaml.org,2002:"


class Plain(str):
    """A string that stood unquoted in the file, so that another YAML reader may have read something else."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML file: its values, and where each of them stands."""

    path: Path
    data: dict[str, Any]
    """dict, list, str, int, float, bool, None; unquoted strings are of type `Plain`."""
    lines: dict[KeyPath, int] = field(repr=False)
    """Line (from 1) of every key and list item by its path."""
    text: str = field(repr=False)

    def line_of(self, path: KeyPath) -> int:
        """Line of a key or list item; of its nearest parent that is in the file when it isn't there itself."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def load(path: Path, *, shown: str | None = None) -> Document:
    """Read a YAML file whose top level is a mapping. Raises `BadInput` with file (as `shown`) and line."""
    name = shown or str(path)
    return parse(_read(path, name), path, shown=name)


def parse(text: str, path: Path, *, shown: str | None = None) -> Document:
    """Read YAML text as if it stood in `path`. Raises `BadInput` with file (as `shown`) and line."""
    name = shown or str(path)
    composer = _Composer(name, text)
    try:
        root = composer.document(_events(text))
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        detail = ", ".join(part for part in (error.context, error.problem) if part)
        raise _bad(name, None if mark is None else mark.line + 1, f"not valid YAML: {detail}") from None
    except YAMLError as error:
        # ReaderError: a control character; it knows a position, not a line
        position = getattr(error, "position", None)
        line = text.count("\n", 0, position) + 1 if isinstance(position, int) else None
        raise _bad(name, line, f"not valid YAML: {getattr(error, 'reason', None) or error}") from None
    if root is None or root.value is None:
        raise _bad(name, 1, "the file is empty", allowed="a mapping (`key: value` lines)")
    if not isinstance(root.value, dict):
        kind = "a list" if isinstance(root.value, list) else "a single value"
        raise _bad(name, root.line, f"the top level is {kind}", allowed="a mapping (`key: value` lines)")
    lines: dict[KeyPath, int] = {}
    return Document(path, _plain_data(root, (), lines), lines, text)


def parse_value(text: str) -> Any:
    """One value as on a command line (`--set key=VALUE`): YAML 1.2 core, without `Plain`. Raises ValueError."""
    try:
        root = _Composer("--set").document(_events(text))
    except (YAMLError, BadInput) as error:
        detail = error.problems[0].message if isinstance(error, BadInput) else getattr(error, "problem", str(error))
        raise ValueError(f"not a YAML value: {detail}") from None
    return None if root is None else without_marks(_plain_data(root, (), {}))


def without_marks(value: Any) -> Any:
    """The same value with every `Plain` made a plain `str`."""
    if isinstance(value, dict):
        return {str(key): without_marks(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_marks(item) for item in value]
    return str(value) if isinstance(value, Plain) else value


def _read(path: Path, name: str) -> str:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise BadInput(Problem(f"can't be read: {error.strerror or error}", file=name)) from None
    if len(raw) > MAX_BYTES:
        raise _bad(name, None, f"the file has {len(raw)} bytes", allowed=f"at most {MAX_BYTES}")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        byte = f"byte 0x{raw[error.start]:02x}"
        raise _bad(name, line, f"not UTF-8 text ({byte})", hint="save the file as UTF-8") from None


def _events(text: str) -> Iterator[Any]:
    events: Iterator[Any] = YAML(typ="safe", pure=True).parse(text)
    return events


def _bad(name: str, line: int | None, message: str, **more: Any) -> BadInput:
    return BadInput(Problem(message, file=name, line=line, **more))


@dataclass(slots=True)
class _Node:
    """A value with its line; children are nodes, keyed by (key, line of the key) order."""

    value: Any
    line: int
    size: int = 1
    key_lines: dict[str, int] = field(default_factory=dict)


class _Composer:
    """Events to nodes; all errors carry the file's name and a line."""

    def __init__(self, name: str, text: str = "") -> None:
        self.name = name
        self.text = text
        self.anchors: dict[str, _Node | None] = {}

    def document(self, events: Iterator[Any]) -> _Node | None:
        """The only document of the stream; None when there is none."""
        root: _Node | None = None
        documents = 0
        for event in events:
            if isinstance(event, DocumentStartEvent):
                documents += 1
                self._check_document(event, documents)
                root = self._node(next(events), events, 0)
        return root

    def _check_document(self, event: Any, documents: int) -> None:
        line = event.start_mark.line + 1
        if documents > 1:
            raise _bad(self.name, line, "a second YAML document starts here", allowed="one document a file")
        if event.version is not None and tuple(event.version) != (1, 2):
            version = ".".join(str(part) for part in event.version)
            written = enumerate(self.text.splitlines(), start=1)  # the event's mark is that of `---`
            line = next((number for number, words in written if words.startswith("%YAML")), line)
            raise _bad(self.name, line, f"%YAML {version} is not read", allowed="YAML 1.2", hint="remove the line")

    def _node(self, event: Any, events: Iterator[Any], depth: int) -> _Node:
        line = event.start_mark.line + 1
        if depth > MAX_DEPTH:
            raise _bad(self.name, line, "nested too deeply", allowed=f"at most {MAX_DEPTH} levels")
        if isinstance(event, AliasEvent):
            return self._alias(event.anchor, line)
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        if isinstance(event, ScalarEvent):
            node = _Node(self._scalar(event, line), line)
        elif isinstance(event, SequenceStartEvent):
            self._check_tag(event, "seq", line)
            node = self._sequence(events, line, depth)
        else:
            assert isinstance(event, MappingStartEvent)
            self._check_tag(event, "map", line)
            node = self._mapping(events, line, depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def _alias(self, name: str, line: int) -> _Node:
        if name not in self.anchors:
            raise _bad(self.name, line, f"alias *{name} has no anchor &{name} above it")
        node = self.anchors[name]
        if node is None:
            raise _bad(self.name, line, f"alias *{name} stands inside its own anchor")
        return node

    def _grown(self, size: int, line: int) -> int:
        if size > MAX_NODES:
            message = "the file grows too large when its aliases are expanded"
            raise _bad(self.name, line, message, allowed=f"at most {MAX_NODES} values")
        return size

    def _sequence(self, events: Iterator[Any], line: int, depth: int) -> _Node:
        items: list[_Node] = []
        size = 1
        while not isinstance(event := next(events), SequenceEndEvent):
            item = self._node(event, events, depth + 1)
            # the event's line: of an alias, the node's own is that of its anchor
            size = self._grown(size + item.size, event.start_mark.line + 1)
            items.append(item)
        return _Node(items, line, size)

    def _mapping(self, events: Iterator[Any], line: int, depth: int) -> _Node:
        entries: dict[str, _Node] = {}
        key_lines: dict[str, int] = {}
        size = 1
        while not isinstance(event := next(events), MappingEndEvent):
            key_line = event.start_mark.line + 1
            key = self._key(event, key_line)
            if key in entries:
                message = f"key {key!r} stands twice (first on line {key_lines[key]})"
                raise _bad(self.name, key_line, message, key=key, hint="remove one of them")
            entries[key] = self._node(next(events), events, depth + 1)
            key_lines[key] = key_line
            size = self._grown(size + entries[key].size, key_line)
        return _Node(entries, line, size, key_lines)

    def _key(self, event: Any, line: int) -> str:
        if isinstance(event, ScalarEvent):
            key = self._scalar(event, line)
            if key == "<<" and isinstance(key, Plain):
                raise _bad(self.name, line, "merge keys (<<) are not part of YAML 1.2", hint="write the keys out")
            if isinstance(key, str):
                return str(key)
            hint = f'quote it: "{event.value}"'
            raise _bad(self.name, line, f"key {event.value!r} is not a string", hint=hint)
        raise _bad(self.name, line, "a key must be a single string")

    def _check_tag(self, event: Any, kind: str, line: int) -> None:
        if event.tag not in (None, "!", _CORE + kind):
            raise self._refused_tag(event.tag, line)

    def _refused_tag(self, tag: str, line: int) -> BadInput:
        shown = "!!" + tag.removeprefix(_CORE) if tag.startswith(_CORE) else tag
        allowed = "plain values; of tags only !!str !!int !!float !!bool !!null !!seq !!map"
        return _bad(self.name, line, f"tag {shown} is refused: no tag may build an object", allowed=allowed)

    def _scalar(self, event: Any, line: int) -> Any:
        try:
            text = _joined(event.value)
            if event.tag is None:
                return resolve_plain(text) if event.style is None else text
            if event.tag in ("!", _CORE + "str"):
                return text
            if event.tag not in _TAGGED:
                raise self._refused_tag(event.tag, line)
            return _TAGGED[event.tag](text)
        except ValueError as error:
            shown = event.value[:80].encode("utf-8", "backslashreplace").decode()
            raise _bad(self.name, line, str(error), value=shown) from None


def _joined(text: str) -> str:
    """Escaped surrogates (`"\\ud83d\\ude00"`, as JSON writers make) as the character that a pair of them means."""
    if not any("\ud800" <= character <= "\udfff" for character in text):
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ValueError("a lone surrogate is no character") from None


def resolve_plain(text: str) -> Any:
    """What an unquoted scalar means in the YAML 1.2 core schema; a string becomes `Plain`."""
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text.lower() == "true"
    if _INT.fullmatch(text) or _OCT.fullmatch(text) or _HEX.fullmatch(text):
        return _integer(text)
    if _FLOAT.fullmatch(text) or _INF.fullmatch(text) or _NAN.fullmatch(text):
        return _float(text)
    return Plain(text)


def _integer(text: str) -> int:
    if len(text) > 100:
        raise ValueError(f"an integer of {len(text)} digits is too long")
    if _OCT.fullmatch(text):
        return int(text[2:], 8)
    if _HEX.fullmatch(text):
        return int(text[2:], 16)
    if _INT.fullmatch(text):
        return int(text)
    raise ValueError("not an integer")


def _float(text: str) -> float:
    if _INF.fullmatch(text) or _NAN.fullmatch(text):
        return float(text.replace(".", ""))
    if not _FLOAT.fullmatch(text):
        raise ValueError("not a number")
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("the number is too large for a 64-bit float")
    return value


def _tagged(pattern: re.Pattern[str], kind: str, text: str) -> Any:
    if not pattern.fullmatch(text):
        raise ValueError(f"not a {kind}")
    return resolve_plain(text)


_TAGGED: dict[str, Callable[[str], Any]] = {
    _CORE + "int": _integer,
    _CORE + "float": _float,
    _CORE + "bool": lambda text: _tagged(_BOOL, "boolean (true or false)", text),
    _CORE + "null": lambda text: _tagged(_NULL, "null", text),
}


def _plain_data(node: _Node, path: KeyPath, lines: dict[KeyPath, int]) -> Any:
    """Nodes to plain data; every expanded alias gets paths of its own, so that errors find a line."""
    lines.setdefault(path, node.line)
    if isinstance(node.value, dict):
        data = {}
        for key, child in node.value.items():
            lines[(*path, key)] = node.key_lines[key]
            data[key] = _plain_data(child, (*path, key), lines)
        return data
    if isinstance(node.value, list):
        return [_plain_data(child, (*path, index), lines) for index, child in enumerate(node.value)]
    return node.value
