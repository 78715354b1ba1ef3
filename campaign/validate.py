"""Pydantic models of YAML files; all errors at once, as `Problem`s with file, line, key and what is allowed."""

from __future__ import annotations

import difflib
import math
import re
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, PrivateAttr, ValidationError, WithJsonSchema
from pydantic_core import ErrorDetails, PydanticCustomError

from campaign.errors import BadInput, Problem
from campaign.slurm.durations import SIZE_FORMS, TIME_FORMS, format_duration, parse_duration, parse_size
from campaign.yamlfile import Document, KeyPath, Plain, load, without_marks


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

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


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
    # text of lists and mappings: problems stay hashable, and the same one is said once
    more["value"] = str(without_marks(value)) if isinstance(value, list | dict) else value
    return Problem(message, file=file, line=line, key=dotted(path), **more)


def dotted(path: KeyPath) -> str | None:
    """`("axes", "nodes", 0)` as `axes.nodes[0]`; None for the top level."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else part)
    return text or None


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return close[0] if close else None


def suggestion(word: str, known: Iterable[str]) -> str | None:
    """`did you mean ...?`, or None when nothing is near."""
    close = nearest(word, known)
    return None if close is None else f"did you mean `{close}`?"


def refuse(message: str, *, allowed: str | None = None, hint: str | None = None) -> PydanticCustomError:
    """An error for a field validator to raise; `allowed` and `hint` reach the `Problem`."""
    return PydanticCustomError("campaign", "{message}", {"message": message, "allowed": allowed, "hint": hint})


# -- from pydantic's errors to problems ------------------------------------------------------------------------------


_KINDS = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list: [a, b]",
    "dict_type": "a mapping: {key: value}",
    "model_type": "a mapping: {key: value}",
}
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
    elif kind == "string_pattern_mismatch":
        message, allowed = "not a valid name", f"letters and signs as in {context['pattern']}"
    if isinstance(detail["input"], str) and kind in ("int_type", "float_type", "bool_type"):
        hint = "write it without quotes" if not isinstance(detail["input"], Plain) else None
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


# -- field types -----------------------------------------------------------------------------------------------------


# what a YAML 1.1 reader turns into a number of seconds: 10:00 -> 600, 24:00:00 -> 86400
_SEXAGESIMAL = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+")


def duration(value: Any, *, unlimited: bool = False) -> Any:
    """Seconds, from a Slurm time in quotes."""
    if not isinstance(value, str):
        minutes = isinstance(value, int) and not isinstance(value, bool)
        hint = f'write it quoted: "{format_duration(value * 60)}" is {value} minutes' if minutes else None
        raise refuse("must be a time in quotes", allowed=TIME_FORMS, hint=hint or 'for example "00:30:00"')
    if isinstance(value, Plain) and _SEXAGESIMAL.fullmatch(value):
        raise refuse(
            "a time without quotes: other YAML readers make a number of seconds of it",
            allowed=f"a time in quotes: {TIME_FORMS}",
            hint=_quoted(value),
        )
    try:
        seconds = parse_duration(value, unlimited=unlimited)
    except ValueError:
        raise refuse("not a Slurm time", allowed=TIME_FORMS, hint='for example "00:30:00"') from None
    if seconds <= 0:
        raise refuse("a time must be more than zero", hint='for example "00:30:00"')
    return seconds


def _quoted(value: str) -> str:
    """How to write an unquoted time, with what it means; two numbers may have been meant as hours and minutes."""
    parts = value.split(":")
    as_slurm = format_duration(parse_duration(value)) if len(parts) in (2, 3) else None
    if len(parts) == 2 and as_slurm:
        hours = f"{parts[0].zfill(2)}:{parts[1].zfill(2)}:00"
        return f'write it quoted: "{as_slurm}" ({_spoken(as_slurm)}) or "{hours}" ({_spoken(hours)})'
    return f'write it quoted: "{value}"'


def _spoken(clock: str) -> str:
    seconds = int(parse_duration(clock))
    words = []
    for size, word in ((3600, "hour"), (60, "minute"), (1, "second")):
        count, seconds = divmod(seconds, size)
        if count:
            words.append(f"{count} {word}{'' if count == 1 else 's'}")
    return " ".join(words) or "0 seconds"


def _whole(value: Any) -> Any:
    """An integer; 512e9, which YAML reads as a float, is one too."""
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise refuse("must be a whole number", allowed="an integer; 512e9 will do")
    return value


def _count(value: Any) -> Any:
    value = _whole(value)
    if value < 0:
        raise refuse("must not be negative", allowed="0 or more")
    return value


def _positive(value: Any) -> Any:
    value = _whole(value)
    if value < 1:
        raise refuse("must be positive", allowed="1 or more")
    return value


def size(value: Any) -> Any:
    """Bytes, from a size with a unit."""
    if not isinstance(value, str):
        raise refuse("a size needs a unit", allowed=SIZE_FORMS, hint=f'for example "{value}G"')
    try:
        return parse_size(value)
    except ValueError:
        raise refuse("not a size", allowed=SIZE_FORMS, hint='for example "16G"') from None


def scalar(value: Any) -> Any:
    """A single value (str, int, finite float, bool, None), without the mark of how it stood in the file."""
    if isinstance(value, str):
        return _without_nul(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise refuse("must be finite", allowed="a finite number")
    if value is None or isinstance(value, bool | int | float):
        return value
    raise refuse("must be a single value", allowed="a string, a number, true, false or null")


def json_value(value: Any) -> Any:
    """Any value of a file that JSON can hold, without marks."""
    if isinstance(value, dict):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [json_value(item) for item in value]
    return scalar(value)


def _word(value: Any) -> Any:
    """A string; a number is taken as its digits, as in `NCCL_IB_TIMEOUT: 18`."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise refuse("must be a string", allowed="a string", hint=f'write it quoted: "{value}"')
    return _without_nul(value)


def _without_nul(value: str) -> str:
    if "\0" in value:
        raise refuse("holds a NUL character, which no argument of a program can")
    return str(value)


def _text(value: Any) -> Any:
    """A string of one line; a number is taken as its digits."""
    text = _word(value)
    if "\n" in text:
        raise refuse("must be one line of text")
    return text


def _token(value: Any) -> Any:
    """A word without blanks: it becomes part of an `#SBATCH` line."""
    if not isinstance(value, str):
        # a number could have lost leading zeros on its way here
        raise refuse("must be a string", allowed="a string", hint=f'write it quoted: "{value}"')
    if not is_token(value):
        raise refuse("must be one word", allowed="text without blanks and control characters")
    return str(value)


def is_token(text: str) -> bool:
    """True for text that can stand in an `#SBATCH` line as it is."""
    return bool(text) and text.isprintable() and not any(character.isspace() for character in text)


_TIME_SCHEMA = {"type": "string", "description": f"A Slurm time in quotes: {TIME_FORMS}."}
_SIZE_SCHEMA = {"type": "string", "description": f"A size: {SIZE_FORMS}."}
_SCALAR_SCHEMA = {"type": ["string", "number", "boolean", "null"]}

Duration = Annotated[float, BeforeValidator(duration), WithJsonSchema(_TIME_SCHEMA)]
"""Seconds, from a Slurm time in quotes."""
Limit = Annotated[float, BeforeValidator(lambda value: duration(value, unlimited=True)), WithJsonSchema(_TIME_SCHEMA)]
"""Seconds, from a Slurm time in quotes; UNLIMITED is infinity."""
Count = Annotated[int, BeforeValidator(_count), WithJsonSchema({"type": "number", "minimum": 0})]
Positive = Annotated[int, BeforeValidator(_positive), WithJsonSchema({"type": "number", "minimum": 1})]
Size = Annotated[int, BeforeValidator(size), WithJsonSchema(_SIZE_SCHEMA)]
"""Bytes, from a size with a unit."""
Word = Annotated[str, BeforeValidator(_word), WithJsonSchema({"type": ["string", "integer"]})]
"""One word of an argument list: any text, several lines too."""
Line = Annotated[str, BeforeValidator(_text), WithJsonSchema({"type": ["string", "integer"]})]
"""One line of text."""
Token = Annotated[str, BeforeValidator(_token), WithJsonSchema({"type": "string"})]
"""One word without blanks."""
Scalar = Annotated[Any, BeforeValidator(scalar), WithJsonSchema(_SCALAR_SCHEMA)]
Json = Annotated[Any, BeforeValidator(json_value), WithJsonSchema({})]


def json_schema(model: type[FileModel], title: str) -> dict[str, Any]:
    """The JSON Schema of a file, for editors (`# yaml-language-server: $schema=...`)."""
    schema = model.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": title}
