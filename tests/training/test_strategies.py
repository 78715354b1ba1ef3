"""Every strategy trains the same: 20 SGD steps at world sizes 1 to 4, data that no world size divides, all formats.

The reference is one process without the loop, without any strategy: autograd of the root itself, PyTorch's clipping.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.needs import needs
from tests.training import forked

# the farm runs some 150 trainings of up to four ranks
pytestmark = [needs("torch", "zarr", "deepspeed", "horovod"), pytest.mark.timeout(900)]

WORLDS = (1, 2, 3, 4)
MORE = (1, 3)
"""World sizes at which micro-batches and overflows are tried."""
PROFILED = (2, 3)
STRATEGIES = ("ddp", "fsdp2", "zero0", "zero1", "zero2", "zero3", "horovod")
STEPS = 20
BATCH = 24
EXACT = {
    "global_batch": BATCH,
    "hidden": 8,
    "dropout": 0.0,
    "optimizer": "sgd",
    "lr": 0.2,
    "epochs": 2,
    "warmup_epochs": 0,
    "window": 4,
    "loss_scale": 256.0,
}
LIMITS = {"fp32": 2e-5, "bf16": 2e-2, "fp16": 3e-3}
"""Largest relative difference of a step's loss from the reference in the same format."""


@dataclass(frozen=True)
class Farm:
    """`found[group][case]`: what rank 0 of that group says of a case; the ranks' exit codes; what they printed."""

    found: dict[str, dict[str, Any]]
    codes: dict[str, list[int]]
    folder: Path

    def said(self) -> str:
        return "\n".join(f"{path.name}: {path.read_text()[-2000:]}" for path in sorted(self.folder.glob("*.err")))

    def losses(self, case: str, worlds: tuple[int, ...] = WORLDS) -> dict[int, list[float]]:
        return {world: self.found[str(world)][case]["losses"] for world in worlds}


def run_farm(data: Path, folder: Path, groups: dict[str, Any]) -> Farm:
    plan = folder / "plan.json"
    plan.write_text(json.dumps({"data": str(data), "groups": groups}))
    forked.run_farm("tests.training.strategy_farm", plan, folder, timeout_s=900)
    codes = json.loads((folder / "codes.json").read_text())
    found = {name: json.loads(path.read_text()) for name in groups if (path := folder / f"{name}.json").exists()}
    return Farm(found, codes, folder)


def fraction_of(data: Path) -> tuple[float, int]:
    """A share of the samples that gives ten steps an epoch, the last one not full, and that no world size divides."""
    from training.data.layout import read_info
    from training.samples import build, load

    total = len(build(load(read_info(data)), EXACT["window"])["train"])  # type: ignore[arg-type]
    wanted = BATCH * (STEPS // 2) - 1  # 239, a prime
    return wanted / total, wanted


@pytest.fixture(scope="module")
def farm(bucket: Path, tmp_path_factory: pytest.TempPathFactory) -> Farm:
    fraction, _ = fraction_of(bucket)
    plain = EXACT | {"fraction": fraction}
    cases = {f"{strategy} {precision}": plain | {"strategy": strategy, "precision": precision}
             for strategy in STRATEGIES for precision in LIMITS}  # fmt: skip
    more = {f"{strategy} accumulated": plain | {"strategy": strategy, "micro_batches": 2} for strategy in STRATEGIES}
    overflow = {"precision": "fp16", "loss_scale": 2.0**100}
    more |= {f"{strategy} overflow": plain | overflow | {"strategy": strategy} for strategy in STRATEGIES}
    groups: dict[str, Any] = {
        str(world): {"world": world, "lie": False, "cases": cases | (more if world in MORE else {})} for world in WORLDS
    }
    fp32 = {strategy: cases[f"{strategy} fp32"] for strategy in STRATEGIES}
    looks = {f"{strategy} {micro}": plain | {"strategy": strategy, "micro_batches": micro, "profile": True}
             for strategy in STRATEGIES for micro in (1, 2)}  # fmt: skip
    groups |= {f"profile {world}": {"world": world, "lie": False, "cases": looks} for world in PROFILED}
    groups["lie"] = {"world": 3, "lie": True, "cases": fp32}
    return run_farm(bucket, tmp_path_factory.mktemp("farm"), groups)


@pytest.fixture(scope="module")
def references(bucket: Path) -> dict[str, list[float]]:
    return {precision: reference(bucket, precision) for precision in LIMITS}


def reference(data: Path, precision: str) -> list[float]:
    import torch

    from training.data.layout import read_info
    from training.model import LSTMSurrogate
    from training.precision import forward_precision
    from training.samples import build, load

    fraction, wanted = fraction_of(data)
    samples = build(load(read_info(data)), EXACT["window"])["train"].fraction(fraction, seed=1)  # type: ignore[arg-type]
    assert len(samples) == wanted
    assert all(len(samples) % world for world in WORLDS if world > 1)
    torch.manual_seed(1)
    model = LSTMSurrogate(3, 2, hidden=8, layers=1, dropout=0.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    losses = []
    for epoch in range(2):
        order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(1 + epoch))
        for index in order.split(BATCH):
            batch = samples.__getitems__(index.tolist())
            with forward_precision(precision, torch.device("cpu")):
                predicted = model(batch.window, batch.static)
            loss = torch.sqrt(torch.mean((predicted.float() - batch.target) ** 2))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
    return losses


def difference(losses: list[float], expected: list[float]) -> float:
    """The largest relative difference of a step."""
    assert len(losses) == len(expected) == STEPS
    return max(abs(a - b) / abs(b) for a, b in zip(losses, expected, strict=True))


def test_all_ranks_end_well(farm: Farm) -> None:
    wanted = {str(world): [0] * world for world in WORLDS} | {f"profile {world}": [0] * world for world in PROFILED}
    assert farm.codes == wanted | {"lie": [0, 0, 0]}, farm.said()


def test_nothing_is_said_on_stderr(farm: Farm) -> None:
    """But for PyTorch's profiler, which says when it begins and ends."""
    said = {path.name: [line for line in path.read_text().splitlines() if not line.startswith("USDT:")]
            for path in farm.folder.glob("*.err")}  # fmt: skip
    assert {name: lines for name, lines in said.items() if lines} == {}


@pytest.mark.parametrize("precision", LIMITS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_same_losses(farm: Farm, references: dict[str, list[float]], strategy: str, precision: str) -> None:
    losses = farm.losses(f"{strategy} {precision}")
    found = {world: difference(of, references[precision]) for world, of in losses.items()}
    assert max(found.values()) < LIMITS[precision], found


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_micro_batches_change_nothing(farm: Farm, references: dict[str, list[float]], strategy: str) -> None:
    losses = farm.losses(f"{strategy} accumulated", MORE)
    found = {world: difference(of, references["fp32"]) for world, of in losses.items()}
    assert max(found.values()) < LIMITS["fp32"], found


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_gradients_that_overflow_are_dropped(farm: Farm, strategy: str) -> None:
    """With a loss scale far too large no step is made: both epochs validate the first weights."""
    first = farm.found["1"]["ddp overflow"]["val_losses"][0]
    for world in MORE:
        case = farm.found[str(world)][f"{strategy} overflow"]
        assert case["val_losses"][0] == case["val_losses"][1] == pytest.approx(first, rel=1e-3)
        assert all(abs(loss) < 10 for loss in case["losses"])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_strategy_reads_the_world_from_the_environment(
    farm: Farm, references: dict[str, list[float]], bucket: Path, strategy: str
) -> None:
    """Each rank's environment says that it is alone: all data are still divided, and the losses are the same."""
    found, wanted = farm.found["lie"][strategy], fraction_of(bucket)[1]
    assert difference(found["losses"], references["fp32"]) < LIMITS["fp32"]
    assert (found["seen"], found["unique"]) == (wanted + 1, wanted)  # 239 samples over 3 ranks: one is read twice


SHAPES = ((32, 5), (32, 8), (32,), (32,), (1, 8), (1,))
"""Parameters of the model: an LSTM of 8 units on 3 inputs and 2 static features, and its head."""


def expected(strategy: str, world: int, micro: int) -> dict[str, tuple[int, int]]:
    """(collectives, bytes) of a step by name: from what each strategy divides and when, nothing measured."""
    numels = [math.prod(shape) for shape in SHAPES]
    whole = 4 * sum(numels)  # fp32
    number = 4  # one fp32 number: the loss, a norm
    # FSDP2 divides the first dimension, with padding; layers are the LSTM and the head
    by_rows = 4 * sum(math.ceil(shape[0] / world) * world * math.prod(shape[1:]) for shape in SHAPES)
    # ZeRO-3 divides each parameter, ZeRO-1 and 2 one flat buffer, in units of two numbers
    by_parameter = 4 * sum(math.ceil(numel / world) * world for numel in numels)
    flat = 4 * math.ceil(sum(numels) / (2 * world)) * 2 * world
    match strategy:
        case "ddp" | "zero0":
            return {"all_reduce": (2, whole + number)}  # one bucket, the loss
        case "horovod":
            return {"all_reduce": (len(SHAPES) + 1, whole + number)}  # each parameter, the loss
        case "fsdp2":  # each layer is gathered in forward and in backward; loss and norm are summed
            return {"all_gather": (4 * micro, 2 * micro * by_rows), "reduce_scatter": (2, by_rows),
                    "all_reduce": (2, 2 * number)}  # fmt: skip
        case "zero1":  # gradients once, the loss, the norm; updated parameters are gathered
            return {"all_reduce": (3, whole + 2 * number), "all_gather": (1, flat)}
        case "zero2":  # gradients after every micro-batch
            return {"all_reduce": (micro + 2, micro * whole + 2 * number), "all_gather": (1, flat)}
        case "zero3":  # small parameters are gathered once, after the step; loss, and norm with a flag
            return {"reduce_scatter": (micro, micro * by_parameter), "all_gather": (len(SHAPES), by_parameter),
                    "all_reduce": (2, 3 * number)}  # fmt: skip
    raise AssertionError(strategy)


@pytest.mark.parametrize("micro", [1, 2])
@pytest.mark.parametrize("world", PROFILED)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_collectives_and_bytes_of_a_step(farm: Farm, strategy: str, world: int, micro: int) -> None:
    found = farm.found[f"profile {world}"][f"{strategy} {micro}"]
    assert {name: (count, found["bytes"][name]) for name, count in found["collectives"].items()} == expected(
        strategy, world, micro
    )
    assert 0 < found["fraction"] < 1


def test_the_reference_learns(references: dict[str, list[float]]) -> None:
    for losses in references.values():
        assert sum(losses[-3:]) < 0.9 * sum(losses[:3])


def test_the_table(farm: Farm, references: dict[str, list[float]]) -> None:
    """Printed for docs/evidence."""
    print("\nlargest relative difference of a step's loss from one plain process, 20 SGD steps, world sizes 1 2 3 4")
    print(f"{'strategy':10}" + "".join(f"{precision:>36}" for precision in LIMITS))
    for strategy in STRATEGIES:
        cells = []
        for precision in LIMITS:
            losses = farm.losses(f"{strategy} {precision}").values()
            cells.append(" ".join(f"{difference(of, references[precision]):.1e}" for of in losses))
        print(f"{strategy:10}" + "".join(f"{cell:>36}" for cell in cells))
