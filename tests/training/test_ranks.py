"""Real ranks over gloo: the same training at every world size, the audit of what they read, and how they end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from campaign.errors import BadInput
from tests.needs import needs
from tests.training.ranks import Case, Ran, run_cases

pytestmark = needs("torch", "zarr")

EXACT = {
    "global_batch": 36,
    "hidden": 16,
    "dropout": 0.0,
    "optimizer": "sgd",
    "lr": 0.2,
    "precision": "fp64",
    "epochs": 2,
    "window": 6,
    "fraction": 0.9977,
}
"""Everything that may differ between world sizes for good reasons is switched off."""


@pytest.fixture(scope="module")
def ran(bucket: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """All cases, in one farm: importing PyTorch costs more than all of them."""
    data = str(bucket)
    cases = {f"world {world}": Case(world, EXACT, data) for world in (1, 2, 3)}
    cases["adam"] = Case(2, EXACT | {"optimizer": "adam", "lr": 1e-3, "precision": "fp32"}, data)
    cases["bf16"] = Case(2, EXACT | {"optimizer": "adam", "lr": 1e-3, "precision": "bf16"}, data)
    cases["profile"] = Case(2, EXACT | {"profile": True}, data)
    cases["workers"] = Case(2, EXACT | {"num_workers": 2}, data)
    cases["unsharded"] = Case(2, EXACT | {"sharded": False}, data)
    cases["undivided"] = Case(3, EXACT | {"global_batch": 32}, data)
    cases["no data"] = Case(2, EXACT, data + "-elsewhere")
    cases["raises"] = Case(3, EXACT, data, raises=1)
    cases["hangs"] = Case(3, EXACT | {"train_timeout_s": 3}, data, hangs=1)
    return dict(zip(cases, run_cases(list(cases.values()), tmp_path_factory.mktemp("ranks")), strict=True))


def reference_losses(data: Path) -> list[float]:
    """The same training without the loop: one process, no DDP, autograd of the root itself, PyTorch's clipping."""
    import torch

    from training.data.layout import read_info
    from training.model import LSTMSurrogate
    from training.samples import build, load

    samples = build(load(read_info(data)), EXACT["window"])["train"].fraction(EXACT["fraction"], seed=1)
    torch.manual_seed(1)
    model = LSTMSurrogate(3, 2, hidden=16, layers=1, dropout=0.0).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    losses = []
    for epoch in range(2):
        order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(1 + epoch))
        for index in order.split(36):
            batch = samples.__getitems__(index.tolist())
            predicted = model(batch.window.double(), batch.static.double())
            loss = torch.sqrt(torch.mean((predicted - batch.target.double()) ** 2))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
    return losses


@pytest.mark.parametrize("world", [1, 2, 3])
def test_the_same_training_at_every_world_size(ran: dict[str, Ran], bucket: Path, world: int) -> None:
    result = ran[f"world {world}"]
    assert result.codes == [0] * world, str(result)
    expected = reference_losses(bucket)
    assert result.epochs()[0]["samples_unique"] == 433  # a prime: no world size divides it, padding must not count
    assert len(expected) > 20
    assert expected[-1] < 0.9 * expected[0]
    for rank in range(world):
        assert result.losses(rank) == pytest.approx(expected, rel=1e-9)


def test_what_each_rank_records(ran: dict[str, Ran]) -> None:
    result = ran["world 2"]
    for rank in range(2):
        steps, others = result.records(rank)
        names = [record["name"] for record in others if record["k"] == "phase"]
        assert names == [
            "python_up", "imports_done", "pg_ready", "first_collective", "first_batch", "first_step"
        ]  # fmt: skip
        assert {"k": "world", "rank": rank, "world_size": 2}.items() <= next(
            record for record in others if record["k"] == "world"
        ).items()
        epochs = result.epochs(rank)
        assert [epoch["warmup"] for epoch in epochs] == [True, False]
        assert sum(epoch["steps"] for epoch in epochs) == len(steps)
        assert [step[2] for step in steps] == list(range(len(steps)))
        assert sum(epoch["samples_seen"] for epoch in epochs) == sum(step[4] for step in steps)
        for epoch in epochs:
            own = [step for step in steps if step[1] == epoch["epoch"]]
            assert 0 < sum(step[11] for step in own) <= epoch["epoch_time_s"]  # step_s
            assert epoch["loss"] == pytest.approx(sum(step[12] for step in own) / len(own))
            assert epoch["val_loss"] > 0
        for step in steps:
            data_wait, h2d, forward, backward, exposed, optimizer, whole = step[5:12]
            parts = data_wait + h2d + forward + backward + optimizer
            assert min(data_wait, h2d, forward, backward, optimizer) >= 0
            assert parts == pytest.approx(whole)
            assert not exposed < 0
        assert any(step[9] >= 0 for step in steps)  # DDP has measured its communication
    assert result.epochs(0)[1]["val_loss"] == pytest.approx(result.epochs(1)[1]["val_loss"])


def test_the_profiler_mode_records_counts_and_no_times(ran: dict[str, Ran]) -> None:
    case = ran["profile"]
    assert case.codes == [0, 0], str(case)
    steps, others = case.records()
    assert steps == []
    assert case.epochs() == []
    seen = {(record["name"], record["labels"].get("operation")): record["value"] for record in others
            if record["k"] == "observe"}  # fmt: skip
    assert seen["collectives_per_step", "all_reduce"] == 2
    assert 0 < seen["itwinai_computation_fraction", None] < 1
    assert {record["k"] for record in case.records(1)[1]} <= {"phase", "world", "affinity"}
    assert "all_reduce: 2 a step, " in case.out()


def test_loader_workers_change_nothing_but_who_reads(ran: dict[str, Ran]) -> None:
    """Two processes a rank, from a server that has no threads; the rank's own end ends them."""
    case = ran["workers"]
    assert case.codes == [0, 0], str(case)
    assert case.losses() == ran["world 2"].losses()
    assert [epoch["samples_unique"] for epoch in case.epochs()] == [
        epoch["samples_unique"] for epoch in ran["world 2"].epochs()
    ]


def test_the_audit_of_sharded_data(ran: dict[str, Ran]) -> None:
    for world in (1, 2, 3):
        result = ran[f"world {world}"]
        unique = {epoch["samples_unique"] for rank in range(world) for epoch in result.epochs(rank)}
        assert len(unique) == 1
        (count,) = unique
        for number in range(2):
            seen = sum(result.epochs(rank)[number]["samples_seen"] for rank in range(world))
            assert count <= seen < count + world
        hashes = [epoch["order_hash"] for epoch in result.epochs()]
        assert len(set(hashes)) == 2  # set_epoch was called
        assert hashes == [epoch["order_hash"] for epoch in result.epochs(world - 1)]


def test_the_audit_finds_unsharded_data(ran: dict[str, Ran]) -> None:
    result = ran["unsharded"]
    assert result.codes == [0, 0], str(result)
    unique = result.epochs()[0]["samples_unique"]
    assert unique == ran["world 1"].epochs()[0]["samples_unique"]
    assert [result.epochs(rank)[0]["samples_seen"] for rank in range(2)] == [unique, unique]
    assert result.epochs()[0]["steps"] == 2 * ran["world 2"].epochs()[0]["steps"] - 1


@pytest.mark.parametrize("case", ["adam", "bf16"])
def test_other_precisions_learn_too(ran: dict[str, Ran], case: str) -> None:
    result = ran[case]
    assert result.codes == [0, 0], str(result)
    losses = result.losses()
    assert sum(losses[-5:]) < sum(losses[:5])
    if case == "bf16":
        assert losses != ran["adam"].losses()
        assert losses[:3] == pytest.approx(ran["adam"].losses()[:3], rel=0.05)


def test_bad_input_ends_every_rank(ran: dict[str, Ran]) -> None:
    result = ran["undivided"]
    assert result.codes == [2, 2, 2], str(result)
    assert "global batch can't be divided over 3 ranks" in result.err(1)
    assert "global_batch: 30" in result.err(1)
    assert "Traceback" not in result.err(1)
    result = ran["no data"]
    assert result.codes == [2, 2]
    assert "rank 1: error:" in result.err(1)
    assert "campaign data prepare hydrology --dest" in result.err(1)


def test_a_rank_that_raises_ends_all(ran: dict[str, Ran]) -> None:
    result = ran["raises"]
    assert result.codes == [1, 1, 1], str(result)
    assert "ValueError: sabotaged" in result.err(1)
    for rank in (0, 2):
        assert "a collective failed" in result.err(rank)
        assert "Traceback" not in result.err(rank)
    assert len(result.losses(0)) >= 5  # what was done is recorded


def test_a_rank_that_hangs_ends_all_others(ran: dict[str, Ran]) -> None:
    """Without the shorter timeout after the first step they would wait for init_timeout_s, 300 s."""
    result = ran["hangs"]
    assert [result.codes[0], result.codes[2]] == [1, 1], str(result)
    for rank in (0, 2):
        assert "a collective failed" in result.err(rank)
        assert "train_timeout_s" in result.err(rank)
        assert len(result.losses(rank)) >= 5


def test_by_hand(bucket: Path) -> None:
    """One plain process, as the documentation says; no campaign, no torchrun."""
    words = ["--data", str(bucket), "--params", '{"global_batch": 64, "epochs": 1, "hidden": 8}']
    answer = subprocess.run(
        [sys.executable, "-P", "-m", "training.workloads.hydrology", *words],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert "epoch 0: " in answer.stdout
    assert "1 ranks on" in answer.stdout
    assert answer.stderr == ""


def test_half_of_a_launcher_s_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from training.distributed import process_group

    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("MASTER_PORT", raising=False)
    with (
        pytest.raises(BadInput, match="RANK, WORLD_SIZE set, but not MASTER_ADDR, MASTER_PORT"),
        process_group(10),
    ):
        pass


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--params", "{"], "no JSON"),
        (["--params", "[1]"], "not an object"),
        (["--params", '{"hiden": 3}'], "unknown parameter"),
        (["--params", "{}"], "global_batch or local_batch"),
        (["--params", '{"global_batch": 8}', "--data", "nowhere"], "no prepared data set"),
    ],
)
def test_bad_input_in_this_process(
    argv: list[str], text: str, bucket: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from training.workloads.hydrology import main

    monkeypatch.setenv("CAMPAIGN_DATA", str(bucket.parent))
    monkeypatch.setattr("training.workloads.hydrology.NAME", "hydrology_synthetic")
    assert main(argv) == 2
    assert text in capsys.readouterr().err


def test_parameters_of_a_run(
    bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the agent writes: the data set's options say how much of it is used."""
    from training.workloads.hydrology import main

    spec = {
        "params": {"global_batch": 64, "epochs": 1, "hidden": 8, "nodes": 1, "strategy": "ddp"},
        "data": {"name": "hydrology_synthetic", "options": {"fraction": 0.5}, "path": str(bucket), "digest": "x"},
    }
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    monkeypatch.setenv("CAMPAIGN_SPEC", str(tmp_path / "spec.json"))
    assert main([]) == 0
    assert "share taken 0.5" in capsys.readouterr().out
