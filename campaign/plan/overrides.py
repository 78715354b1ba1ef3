"""`--set KEY=VALUE`: what a key means for a study, and its value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from campaign.errors import BadInput, Problem
from campaign.study import SHAPE, Resources
from campaign.validate import suggestion
from campaign.yamlfile import KeyPath, parse_value

BY_KEY = ("axes", "params", "resources", "staging", "record", "retry")
"""Mappings of a study whose keys are replaced one by one; all other keys are replaced as a whole."""
_SETTABLE = ("walltime", "repeats", "order", "revision", "pack", "gate", "scaling", "baseline")
_SCHEDULING = tuple(name for name in Resources.model_fields if name not in (*SHAPE, "exclude"))


def parse_overrides(texts: Iterable[str]) -> dict[str, str]:
    """`KEY=VALUE` texts as a mapping; values stay text until their key is known. Raises `BadInput`."""
    overrides: dict[str, str] = {}
    problems = []
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            problems.append(Problem("not KEY=VALUE", "--set", value=text, hint="for example --set lr=1e-2"))
        elif key in overrides:
            problems.append(Problem("given twice", "--set", key=key, value=text))
        overrides[key] = value
    if problems:
        raise BadInput(problems)
    return overrides


def resolve(data: Mapping[str, Any], key: str, value: Any) -> tuple[KeyPath, Any]:
    """Path and value of an override in the data of a study. Text is read as YAML. Raises `BadInput`."""
    path = _target(data, key, value)
    if isinstance(value, str) and not value.strip() and path[0] != "axes":
        hint = f"a value, or {key}=null for none"
        raise BadInput(Problem("no value given", "--set", key=key, value=value, allowed="KEY=VALUE", hint=hint))
    if isinstance(value, str) and path != ("walltime",):
        try:
            value = _axis_values(value) if path[0] == "axes" else parse_value(value)
        except ValueError as error:
            raise BadInput(Problem(str(error), "--set", key=key, value=value)) from None
    elif path[0] == "axes" and not isinstance(value, list):
        value = [value]
    return path, value


def _axis_values(text: str) -> list[Any]:
    """`[1, 2]`, `1,2` and `1` alike."""
    value = parse_value(text)
    if isinstance(value, str) and "," in value:
        value = parse_value(f"[{text}]")
    return value if isinstance(value, list) else [value]


def _target(data: Mapping[str, Any], key: str, value: Any) -> KeyPath:
    """Where a `--set` key belongs: a path with dots, an axis, a parameter, a resource, or a key of the study."""
    axes, params = data.get("axes") or {}, data.get("params") or {}
    head, _, rest = key.partition(".")
    if rest:
        known = {*BY_KEY, "data"}
        if head in known:
            return tuple(key.split("."))
        raise _no_key(key, {f"{name}.{rest}" for name in known})
    if key in axes:
        return ("axes", key)
    if any(key in group for group in data.get("zip") or ()):
        message = f"axis `{key}` is zipped with others and can't be set alone"
        raise BadInput(Problem(message, "--set", key=key, value=value, hint="change the study's `zip`"))
    if key in params:
        return ("params", key)
    if key in SHAPE:
        several = isinstance(value, list) or (isinstance(value, str) and ("," in value or "[" in value))
        return ("axes" if several else "resources", key)
    if key in _SCHEDULING:
        return ("resources", key)
    if key in _SETTABLE:
        return (key,)
    raise _no_key(key, {*axes, *params, *SHAPE, *_SCHEDULING, *_SETTABLE})


def _no_key(key: str, known: set[str]) -> BadInput:
    allowed = ", ".join(sorted(known))
    hint = suggestion(key, known) or f"a new parameter: --set params.{key}=VALUE; a new axis: --set axes.{key}=A,B"
    return BadInput(Problem(f"nothing of the study is called `{key}`", "--set", key=key, allowed=allowed, hint=hint))
