"""Pydantic models of YAML files; all errors at once, as `Problem`s with file, line, key and what is allowed."""

from __future__ import annotations

import difflib
import math
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError
from pydantic_core import ErrorDetails

from campaign.errors import BadInput, Problem
from campaign.yamlfile import Document, KeyPath, load, resolve_plain, without_marks


class Source(Protocol):
    """Where values came from."""

    @property
    def data(self) -> dict[str, Any]: ...

    def place(self, path: KeyPath) -> tuple[str, int | None]:
        """File and line of a key, or of its nearest parent that was written down."""
        ...


class FileSource:
    """One YAML file as the source of a model."""

    def __init__(self, document: Document, shown: str) -> None:
        self.document = document
        self.shown = shown

    @property
    def data(self) -> dict[str, Any]:
        return self.document.data

    def place(self, path: KeyPath) -> tuple[str, int | None]:
        return self.shown, self.document.line_of(path)


class Strict(BaseModel):
    """A mapping whose unknown keys and wrong types are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class FileModel(Strict):
    """The top level of a YAML file; knows where each of its keys stands."""

    _source: Source | None = PrivateAttr(default=None)

    @property
    def source(self) -> Source:
        """Where the values came from."""
        assert self._source is not None
        return self._source

    def problem(self, path: KeyPath, message: str, **more: Any) -> Problem:
        """A `Problem` with the file, line, key and value at `path`. `more`: value, allowed, hint."""
        return problem_at(self.source, path, message, **more)

    def check(self) -> Iterable[Problem]:
        """What types can't say: references between keys. Called once all keys are of the right type."""
        return ()


M = TypeVar("M", bound=FileModel)


def load_model(path: Path, model: type[M], *, shown: str | None = None) -> M:
    """Read and check a YAML file. `shown` is the file name for messages. Raises `BadInput` with every error found."""
    name = shown or str(path)
    source = FileSource(load(path, shown=name), name)
    return validate(source, model)


def validate(source: Source, model: type[M]) -> M:
    """Check values against a model; the model remembers their source. Raises `BadInput` with every error found."""
    try:
        checked = model.model_validate(source.data)
    except ValidationError as error:
        raise BadInput([_explain(detail, source, model) for detail in error.errors(include_url=False)]) from None
    checked._source = source
    problems = list(checked.check())
    if problems:
        raise BadInput(problems)
    return checked


def problem_at(source: Source, path: KeyPath, message: str, **more: Any) -> Problem:
    """A `Problem` at a key of a source; the value is looked up when it isn't given."""
    file, line = source.place(path)
    value = more.pop("value") if "value" in more else _value_at(source.data, path)
    # text of lists and mappings: problems stay hashable, and the same one is said once; JSON has no NaN
    odd = isinstance(value, list | dict) or (isinstance(value, float) and not math.isfinite(value))
    more["value"] = str(without_marks(value)) if odd else value
    return Problem(message, file=file, line=line, key=dotted(path), **more)


def dotted(path: KeyPath) -> str | None:
    """`("axes", "nodes", 0)` as `axes.nodes[0]`; None for the top level."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else part)
    return text or None


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant: one that is spelt much like it, else the only one that begins with it."""
    by_spelling = {name.casefold(): name for name in known}
    word = word.casefold()
    close = difflib.get_close_matches(word, by_spelling, n=1)
    begin = [name for name in by_spelling if len(word) > 1 and name.startswith(word)]
    found = close or (begin if len(begin) == 1 else [])
    return by_spelling[found[0]] if found else None


def suggestion(word: str, known: Iterable[str]) -> str | None:
    """`did you mean ...?`, or None when nothing is near."""
    close = nearest(word, known)
    return None if close is None else f"did you mean `{close}`?"


# -- from pydantic's errors to problems ------------------------------------------------------------------------------


_KINDS = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "list_type": "a list: [a, b]",
    "dict_type": "a mapping: {key: value}",
    "model_type": "a mapping: {key: value}",
}
UNQUOTED = {"int_type": (int,), "float_type": (int, float), "bool_type": (bool,)}
"""What a text in quotes would have to mean without them, by pydantic's word for the wrong type."""
_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}


def _explain(detail: ErrorDetails, source: Source, model: type[BaseModel]) -> Problem:
    kind, context = detail["type"], detail.get("ctx", {})
    path = _path_in(source.data, detail["loc"])
    if kind == "extra_forbidden":
        return _unknown_key(path, source, model)
    if kind == "missing":
        file, line = source.place(path)
        missing = (*path, str(detail["loc"][-1]))
        return Problem(f"key `{missing[-1]}` is missing", file=file, line=line, key=dotted(missing))
    message, allowed, hint = detail["msg"], None, None
    if kind == "campaign":
        message, allowed, hint = context["message"], context["allowed"], context["hint"]
    elif kind in _KINDS:
        message, allowed = f"must be {_KINDS[kind].split(':')[0]}", _KINDS[kind]
    elif kind == "literal_error":
        message, allowed = "not one of the allowed values", str(context["expected"])
    elif kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        message, allowed = "out of range", f"{words} {context[name]}"
    elif kind == "too_short":
        message, allowed = "must not be empty", f"at least {context['min_length']} entry"
    elif kind == "string_pattern_mismatch":
        message, allowed = "not a valid name", f"letters and signs as in {context['pattern']}"
    if isinstance(detail["input"], str) and kind in UNQUOTED:
        # "2" for 2, but not "abc"
        meant = resolve_plain(detail["input"].strip())
        hint = "write it without quotes" if type(meant) in UNQUOTED[kind] else None
    return problem_at(source, path, message, allowed=allowed, hint=hint)


def _unknown_key(path: KeyPath, source: Source, model: type[BaseModel]) -> Problem:
    keys = keys_at(model, path[:-1])
    where = dotted(path[:-1])
    message = f"unknown key `{path[-1]}`" + (f" in `{where}`" if where else "")
    allowed = ", ".join(keys) or None
    return problem_at(source, path, message, allowed=allowed, hint=suggestion(str(path[-1]), keys))


def _path_in(data: Any, loc: tuple[int | str, ...]) -> KeyPath:
    """The part of pydantic's location that exists in the data (unions and validators add names of their own)."""
    path: list[int | str] = []
    for part in loc:
        if isinstance(data, dict) and part in data:
            data = data[str(part)]
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            continue
        path.append(part)
    return tuple(path)


def _value_at(data: Any, path: KeyPath) -> Any:
    for part in path:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def keys_at(model: Any, path: KeyPath) -> list[str]:
    """The keys that a model allows at a path; empty where any key is allowed."""
    for part in path:
        model = _step(model, part)
    model = _bare(model)
    if isinstance(model, type) and issubclass(model, BaseModel):
        return [field.alias or name for name, field in model.model_fields.items()]
    return []


def _step(annotation: Any, part: str | int) -> Any:
    annotation = _bare(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            if part in (name, field.alias):
                return field.annotation
        return None
    arguments = get_args(annotation)
    if get_origin(annotation) is dict:
        return arguments[1]
    return arguments[0] if get_origin(annotation) is list else None


def _bare(annotation: Any) -> Any:
    """Without Annotated and `| None`."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif get_origin(annotation) in (Union, types.UnionType):
            annotation = next(part for part in get_args(annotation) if part is not type(None))
        else:
            return annotation


def json_schema(model: type[FileModel], title: str) -> dict[str, Any]:
    """The JSON Schema of a file, for editors (`# yaml-language-server: $schema=...`)."""
    schema = model.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": title}
