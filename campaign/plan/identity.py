"""Who a run is: `run_id` and `series` (contract section 2).

run_id = first 16 hexadecimal digits of SHA-256 over canonical JSON (UTF-8, sorted keys, no spaces) of
{site, workload | argv, params, nodes, ranks_per_node, cpus_per_rank, gpus_per_rank, repeat} and, only where they differ
from their defaults, {data, staging, pack, image, revision}. A new optional key with a default changes no id.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

STAGING_DEFAULTS: dict[str, Any] = {"mode": "none", "redirect": True}
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_NOT_IN_SERIES = ("nodes", "ranks_per_node", "global_batch", "local_batch")


def canonical(value: Any) -> str:
    """One text for one value. Raises ValueError for NaN and infinities."""
    return _ENCODER.encode(value)


def digest(value: Any, length: int) -> str:
    """The first `length` hexadecimal digits of SHA-256 over the canonical JSON."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:length]


def identity(
    *,
    site: str,
    program: str | list[str],
    params: dict[str, Any],
    nodes: int,
    ranks_per_node: int,
    cpus_per_rank: int,
    gpus_per_rank: int,
    data: dict[str, Any] | None = None,
    staging: dict[str, Any] | None = None,
    concurrent: bool = False,
    image: str | None = None,
    revision: str | int | None = None,
) -> dict[str, Any]:
    """The mapping that is hashed, less the repeat.

    `program`: the workload's entry point, or the command's argv before it is filled in.
    `data`: {digest, options}; `staging`: {mode, redirect}. Not in it: study name, walltime, account, partition, commit.
    """
    fields: dict[str, Any] = {
        "site": site,
        "params": params,
        "nodes": nodes,
        "ranks_per_node": ranks_per_node,
        "cpus_per_rank": cpus_per_rank,
        "gpus_per_rank": gpus_per_rank,
    }
    fields["workload" if isinstance(program, str) else "argv"] = program
    moved = {key: value for key, value in (staging or {}).items() if value != STAGING_DEFAULTS[key]}
    read = {key: value for key, value in (data or {}).items() if value}
    optional = {"staging": moved, "data": read, "image": image, "revision": revision}
    fields.update({key: value for key, value in optional.items() if value not in (None, {})})
    if concurrent:
        fields["pack"] = "concurrent"
    return fields


def run_id(fields: dict[str, Any]) -> str:
    """16 hexadecimal digits, from the identity with its `repeat`."""
    return digest(fields, 16)


def series(axes: dict[str, Any], params: dict[str, Any], options: dict[str, Any]) -> str:
    """What runs of one curve share: every axis and parameter except nodes, ranks_per_node, batch and repeat.

    Axes are written out for people (`strategy=ddp`); `#` and 6 digits stand for the parameters and the data's options.
    """
    shown = " ".join(f"{name}={_text(value)}" for name, value in axes.items() if name not in _NOT_IN_SERIES)
    rest = {name: value for name, value in params.items() if name not in _NOT_IN_SERIES and name not in axes}
    return f"{shown} #{digest({'params': rest, 'options': options}, 6)}".strip()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
