"""Parameters of a training run: names, types, defaults, what is allowed. Everything else is an error."""

from __future__ import annotations

import dataclasses
import difflib
import typing
from dataclasses import dataclass, field
from typing import Any, Literal

from campaign.errors import BadInput, Problem

PLACEMENT_KEYS = frozenset({"nodes", "ranks_per_node", "cpus_per_rank", "gpus_per_rank", "memory", "partition"})
"""Axes and resources of a study: they may stand among the parameters and mean nothing to a workload."""


def _positive(default: Any = dataclasses.MISSING, **extra: Any) -> Any:
    return field(default=default, metadata={"above": 0} | extra)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One training run. Give `global_batch` (fixed over all world sizes) or `local_batch` (per rank), not both."""

    global_batch: int | None = _positive(None)
    local_batch: int | None = _positive(None)
    hidden: int = _positive(128)
    layers: int = _positive(1)
    dropout: float = field(default=0.2, metadata={"least": 0.0, "below": 1.0})
    lr: float = _positive(1e-3)
    weight_decay: float = field(default=0.0, metadata={"least": 0.0})
    lr_schedule: Literal["constant", "cosine"] = "constant"
    """cosine: from `lr` to 0 over all steps, by step."""
    optimizer: Literal["adam", "sgd"] = "adam"
    grad_clip: float = _positive(1.0)
    """Largest norm of the gradient of all parameters."""
    epochs: int = _positive(3)
    warmup_epochs: int = field(default=1, metadata={"least": 0})
    """First epochs that are marked as warm-up: trained like the others, left out of epoch_time_s."""
    seed: int = field(default=1, metadata={"least": 0})
    precision: Literal["fp32", "bf16", "fp16", "fp64"] = "fp32"
    """bf16, fp16: autocast, weights stay fp32; fp16 with a loss scale."""
    loss_scale: float = _positive(65536.0)
    """fp16: the first one. Halved after each step with gradients that aren't finite, doubled after 2,000 good ones."""
    strategy: Literal["ddp", "fsdp2", "zero0", "zero1", "zero2", "zero3", "horovod"] = "ddp"
    micro_batches: int = _positive(1)
    """Forward and backward passes of an optimizer step (gradient accumulation): a rank's batch is cut into so many."""
    window: int = _positive(10)
    """Past time steps that the model sees."""
    fraction: float = field(default=1.0, metadata={"above": 0.0, "most": 1.0})
    """Share of the training samples that is used, drawn with `seed`; validation takes the same share."""
    sharded: bool = True
    """False: every rank reads all samples. A fault on purpose, the one of the CERN report's first runs."""
    profile: bool = False
    """Count collectives and profile some steps instead of training: no times (see `training.profile`)."""
    validate: bool = True
    """Loss on the validation years after each epoch (outside of the epoch time)."""
    num_workers: int | Literal["auto"] = field(default=0, metadata={"least": 0})
    """Loader processes; auto: from the cores that this rank really has."""
    init_timeout_s: float = _positive(300.0)
    """Until the process group and the first step are there."""
    train_timeout_s: float = _positive(100.0)
    """For each collective after the first step: a rank that is gone or stuck ends all others after this."""

    def micro_batch(self, local_batch: int) -> int:
        """Samples of one pass. Raises BadInput when a rank's batch isn't divisible."""
        if local_batch % self.micro_batches:
            raise BadInput(
                Problem(
                    f"a rank's batch of {local_batch} can't be divided",
                    key="micro_batches",
                    value=self.micro_batches,
                    allowed=f"divisors of {local_batch}",
                )
            )
        return local_batch // self.micro_batches

    def batches(self, world_size: int) -> tuple[int, int]:
        """(local, global) batch for `world_size` ranks. Raises BadInput when the global batch isn't divisible."""
        if (self.global_batch is None) == (self.local_batch is None):
            given = "both" if self.global_batch is not None else "neither"
            raise BadInput(Problem(f"give global_batch or local_batch: {given} given", key="global_batch"))
        if self.local_batch is not None:
            return self.local_batch, self.local_batch * world_size
        assert self.global_batch is not None
        if self.global_batch % world_size:
            lower = max(self.global_batch // world_size, 1) * world_size
            raise BadInput(
                Problem(
                    f"global batch can't be divided over {world_size} ranks",
                    key="global_batch",
                    value=self.global_batch,
                    allowed=f"multiples of {world_size}",
                    hint=f"global_batch: {lower}",
                )
            )
        return self.global_batch // world_size, self.global_batch


def parse(params: dict[str, Any]) -> Settings:
    """Settings from a study's parameters. Raises BadInput with one problem for each wrong key or value."""
    hints = typing.get_type_hints(Settings)
    known = {f.name: f for f in dataclasses.fields(Settings)}
    problems, values = [], {}
    for key, value in params.items():
        if key in PLACEMENT_KEYS:
            continue
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"{close[0]}: {value}" if close else None
            problems.append(Problem("unknown parameter", key=key, value=value, allowed=", ".join(known), hint=hint))
            continue
        try:
            values[key] = _checked(value, hints[key], known[key].metadata)
        except ValueError as error:
            problems.append(Problem("wrong value", key=key, value=value, allowed=str(error)))
    if problems:
        raise BadInput(problems)
    return Settings(**values)


def _checked(value: Any, kind: Any, limits: Any) -> Any:
    """`value` as `kind` within `limits`; raises ValueError that says what is allowed."""
    if typing.get_origin(kind) is Literal:
        allowed = typing.get_args(kind)
        if value not in allowed:
            raise ValueError(", ".join(allowed))
        return value
    kinds = typing.get_args(kind) or (kind,)
    if value is None and type(None) in kinds:
        return None
    for words in kinds:
        if typing.get_origin(words) is Literal and isinstance(value, str):
            return _checked(value, words, limits)
    kind = next(one for one in kinds if one is not type(None))
    if kind is bool:
        if not isinstance(value, bool):
            raise ValueError("true or false")
        return value
    if isinstance(value, bool) or not isinstance(value, int if kind is int else (int, float)):
        raise ValueError("a whole number" if kind is int else "a number")
    words = {"above": "above {}", "least": "at least {}", "below": "below {}", "most": "at most {}"}
    inside = {
        "above": lambda limit: value > limit,
        "least": lambda limit: value >= limit,
        "below": lambda limit: value < limit,
        "most": lambda limit: value <= limit,
    }
    if not all(inside[name](limit) for name, limit in limits.items()):
        raise ValueError(" and ".join(words[name].format(limit) for name, limit in limits.items()))
    return kind(value)
