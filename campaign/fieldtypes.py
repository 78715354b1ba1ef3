"""Types of single values in YAML files: what each accepts, and what is said when it doesn't."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from campaign.slurm.durations import SIZE_FORMS, TIME_FORMS, format_duration, parse_duration, parse_size
from campaign.yamlfile import Plain


def refuse(message: str, *, allowed: str | None = None, hint: str | None = None) -> PydanticCustomError:
    """An error for a field validator to raise; `allowed` and `hint` reach the `Problem`."""
    return PydanticCustomError("campaign", "{message}", {"message": message, "allowed": allowed, "hint": hint})


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
        raise refuse("must be a string", allowed="a string", hint=_in_quotes(value))
    return _without_nul(value)


def _in_quotes(value: Any) -> str | None:
    """How to write a text that YAML took for something else; None where there is nothing to quote."""
    if isinstance(value, dict) and value and all(item is None for item in value.values()):
        return f'write it quoted: "{{{", ".join(value)}}}"'  # a placeholder: {lr} is a mapping for YAML
    if isinstance(value, bool | int):
        shown = str(value).lower()
        zeros = ", with its leading zeros if it has any" if not isinstance(value, bool) else ""
        return f'write it quoted: "{shown}"{zeros}'
    return f'write it quoted: "{value}", digit by digit as it is meant' if isinstance(value, float) else None


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
        raise refuse("must be a string", allowed="a string", hint=_in_quotes(value))
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
Limit = Annotated[
    float,
    Field(allow_inf_nan=True),
    BeforeValidator(lambda value: duration(value, unlimited=True)),
    WithJsonSchema(_TIME_SCHEMA),
]
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
