"""Parameters: what is allowed, and what is said about the rest."""

from __future__ import annotations

from typing import Any

import pytest

from campaign.errors import BadInput
from tests.needs import needs

pytestmark = needs("torch", "zarr")


def test_defaults_are_the_report_s() -> None:
    from training.settings import parse

    chosen = parse({"global_batch": 256, "nodes": 2, "ranks_per_node": 4, "strategy": "ddp"})
    assert (chosen.hidden, chosen.layers, chosen.dropout, chosen.lr, chosen.optimizer, chosen.grad_clip) == (
        128,
        1,
        0.2,
        1e-3,
        "adam",
        1.0,
    )
    assert chosen.batches(4) == (64, 256)
    assert parse({"local_batch": 32}).batches(4) == (32, 128)


@pytest.mark.parametrize(
    ("params", "key", "text"),
    [
        ({"hiden": 64}, "hiden", "hidden: 64"),
        ({"hidden": "64"}, "hidden", "a whole number"),
        ({"hidden": 64.0}, "hidden", "a whole number"),
        ({"hidden": True}, "hidden", "a whole number"),
        ({"hidden": 0}, "hidden", "above 0"),
        ({"lr": "1e-3"}, "lr", "a number"),
        ({"dropout": 1}, "dropout", "at least 0.0 and below 1.0"),
        ({"fraction": 1.5}, "fraction", "above 0.0 and at most 1.0"),
        ({"precision": "fp8"}, "precision", "fp32, bf16, fp16, fp64"),
        ({"strategy": "zero4"}, "strategy", "ddp, fsdp2, zero0, zero1, zero2, zero3, horovod"),
        ({"micro_batches": 0}, "micro_batches", "above 0"),
        ({"num_workers": "many"}, "num_workers", "auto"),
        ({"num_workers": -1}, "num_workers", "at least 0"),
        ({"sharded": "no"}, "sharded", "true or false"),
        ({"seed": -1}, "seed", "at least 0"),
    ],
)
def test_wrong_values(params: dict[str, Any], key: str, text: str) -> None:
    from training.settings import parse

    with pytest.raises(BadInput) as error:
        parse({"global_batch": 256} | params)
    (problem,) = error.value.problems
    assert problem.key == key
    assert problem.value == params[key]
    assert text in str(problem)


def test_all_problems_at_once() -> None:
    from training.settings import parse

    with pytest.raises(BadInput) as error:
        parse({"hiden": 64, "lr": -1, "epochs": 0})
    assert [problem.key for problem in error.value.problems] == ["hiden", "lr", "epochs"]


@pytest.mark.parametrize("params", [{}, {"global_batch": 8, "local_batch": 4}])
def test_one_batch_size(params: dict[str, int]) -> None:
    from training.settings import parse

    with pytest.raises(BadInput, match="global_batch or local_batch"):
        parse(params).batches(2)


def test_a_batch_that_cannot_be_divided() -> None:
    from training.settings import parse

    with pytest.raises(BadInput, match="over 3 ranks") as error:
        parse({"global_batch": 256}).batches(3)
    (problem,) = error.value.problems
    assert (problem.value, problem.allowed, problem.hint) == (256, "multiples of 3", "global_batch: 255")
