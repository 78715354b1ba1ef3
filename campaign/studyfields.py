"""Types of the keys of a study file: what each accepts, and what is said when it doesn't."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from campaign.fieldtypes import Json, Scalar, duration, refuse, scalar, size
from campaign.plan import expression
from campaign.slurm.durations import SIZE_FORMS, TIME_FORMS

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _amount(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise refuse("must not be negative", allowed=expression.ALLOWED)
        return value
    if not isinstance(value, str):
        raise refuse("must be an integer or an expression", allowed=expression.ALLOWED)
    try:
        expression.parse(value)
    except ValueError as error:
        raise refuse(str(error), allowed=expression.ALLOWED) from None
    return str(value)


def _names(value: Any) -> Any:
    for name in value if isinstance(value, dict) else ():
        if not _IDENTIFIER.fullmatch(name):
            raise refuse(f"`{name}` can't be the name of an axis or parameter", allowed="letters, digits and _")
    return value


def _revision(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise refuse("must be a string or an integer", allowed="a string | an integer")
    return scalar(value)


def _baseline(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): scalar(item) for key, item in value.items()}
    if value != "smallest":
        raise refuse("must be `smallest` or a point", allowed="smallest | {axis: value}")
    return str(value)


def _redirect(value: Any) -> Any:
    if value != "site" and not isinstance(value, bool):
        raise refuse("must be true, false or `site`", allowed="true | false | site")
    return value if isinstance(value, bool) else str(value)


def _pack(value: Any) -> Any:
    if value is False:
        return "false"
    if value not in ("serial", "concurrent"):
        raise refuse("not one of the allowed values", allowed="false | serial | concurrent")
    return str(value)


def _schema(**schema: Any) -> Any:
    return WithJsonSchema(schema)


_AMOUNT = _schema(type=["integer", "string", "null"], description=f"{expression.ALLOWED}.")
Amount = Annotated[Any, BeforeValidator(_amount), _AMOUNT]
Walltime = Annotated[
    Any,
    BeforeValidator(lambda value: str(value) if value == "auto" else duration(value)),
    _schema(type="string", description=f"A Slurm time in quotes ({TIME_FORMS}), or auto."),
]
Memory = Annotated[
    Any,
    BeforeValidator(lambda value: str(value) if value == "site" else size(value)),
    _schema(type="string", description=f"Per node: {SIZE_FORMS}, or site: all that a job may ask for."),
]
Revision = Annotated[Any, BeforeValidator(_revision), _schema(type=["string", "integer"])]
Baseline = Annotated[Any, BeforeValidator(_baseline), _schema(anyOf=[{"const": "smallest"}, {"type": "object"}])]
Redirect = Annotated[Any, BeforeValidator(_redirect), _schema(enum=[True, False, "site"])]
Pack = Annotated[Any, BeforeValidator(_pack), _schema(enum=[False, "serial", "concurrent"])]
Axes = Annotated[dict[str, list[Scalar]], BeforeValidator(_names)]
Params = Annotated[dict[str, Json], BeforeValidator(_names)]
