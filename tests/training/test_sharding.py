"""Who reads what: every sample by somebody, the same samples in a step at every world size, nothing counted twice."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from campaign.errors import BadInput
from tests.needs import needs
from tests.training.forked import ROOT

pytestmark = needs("torch", "zarr")


class Numbered:
    """As many samples as asked for; a batch is their numbers."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitems__(self, indices: list[int]) -> Any:
        import torch

        from training.samples import Batch

        index = torch.tensor(indices)
        return Batch(index, index, index, index)


def shard(count: int, world: int, rank: int, local_batch: int, *, sharded: bool = True) -> Any:
    import torch

    from training.distributed import World
    from training.sharding import Shard

    place = World(rank, world, torch.device("cpu"), "gloo")
    return Shard(Numbered(count), place, local_batch, seed=7, sharded=sharded)  # type: ignore[arg-type]


def read(count: int, world: int, local_batch: int, epoch: int, *, sharded: bool = True) -> list[list[list[int]]]:
    """[rank][step] the samples read."""
    ranks = []
    for rank in range(world):
        own = shard(count, world, rank, local_batch, sharded=sharded)
        own.set_epoch(epoch)
        ranks.append([batch.index.tolist() for batch in own.loader])
    return ranks


@pytest.mark.parametrize(("count", "world"), [(100, 1), (100, 3), (101, 4), (97, 5), (103, 7), (7, 7)])
def test_every_sample_is_read(count: int, world: int) -> None:
    ranks = read(count, world, 4, epoch=1)
    assert len({len(steps) for steps in ranks}) == 1  # all ranks take as many steps: nobody waits for ever
    seen = [sample for steps in ranks for batch in steps for sample in batch]
    assert set(seen) == set(range(count))
    assert len(seen) == world * math.ceil(count / world)  # padding, and no more


@pytest.mark.parametrize("count", [96, 97, 101])
def test_a_step_is_the_same_samples_at_every_world_size(count: int) -> None:
    global_batch = 24
    one = read(count, 1, global_batch, epoch=2)[0]
    for world in (2, 3, 4, 6):
        ranks = read(count, world, global_batch // world, epoch=2)
        assert len(ranks[0]) == len(one)
        for step, expected in enumerate(one):
            together = []
            for rank in range(world):
                own = shard(count, world, rank, global_batch // world)
                assert own.global_samples(step) == len(expected)
                together += ranks[rank][step][: own.counted(step, len(ranks[rank][step]))]
            assert sorted(together) == sorted(expected)


def test_each_epoch_has_its_order() -> None:
    assert read(50, 2, 5, epoch=0) == read(50, 2, 5, epoch=0)
    assert read(50, 2, 5, epoch=0) != read(50, 2, 5, epoch=1)


def test_unsharded_reads_everything_everywhere() -> None:
    ranks = read(50, 3, 8, epoch=1, sharded=False)
    for steps in ranks:
        assert sorted(sample for batch in steps for sample in batch) == list(range(50))
    own = shard(50, 3, 1, 8, sharded=False)
    assert [own.global_samples(step) for step in range(len(own))] == [24] * 6 + [6]
    assert own.counted(6, 2) == 2


def test_more_ranks_than_samples() -> None:
    with pytest.raises(BadInput, match="6 training samples for 7 ranks"):
        shard(6, 7, 0, 1)


def test_audit_counts() -> None:
    import torch

    from training.distributed import process_group
    from training.sharding import audit

    with process_group(60) as world:
        found = audit(torch.tensor([3, 1, 1, 9]), 12, world)
        assert (found.seen, found.unique, found.duplication) == (4, 3, pytest.approx(4 / 3))
        assert found.order_hash == audit(torch.tensor([3, 1, 1, 9]), 12, world).order_hash
        assert found.order_hash != audit(torch.tensor([1, 3, 1, 9]), 12, world).order_hash


@pytest.mark.parametrize(("cores", "workers"), [(1, 0), (2, 1), (4, 3), (9, 8), (48, 8)])
def test_workers_for_the_cores_that_a_rank_has(cores: int, workers: int) -> None:
    from training.sharding import auto_workers

    assert auto_workers(cores) == workers


@pytest.mark.parametrize(("ranks", "bound", "cores"), [(1, False, 2), (2, False, 1), (8, False, 1), (2, True, 2)])
def test_the_cores_of_a_rank(ranks: int, bound: bool, cores: int, tmp_path: Path) -> None:
    """A process that may run on two CPUs: with campaign they are its own, else it shares them with the other ranks."""
    two = sorted(os.sched_getaffinity(0))[:2]
    if len(two) < 2:
        cores = 1
    ask = f"import os; os.sched_setaffinity(0, {two}); from training.distributed import own_cores; print(own_cores())"
    env = {name: value for name, value in os.environ.items() if name != "CAMPAIGN_RANK_DIR"}
    env |= {"LOCAL_WORLD_SIZE": str(ranks)} | ({"CAMPAIGN_RANK_DIR": str(tmp_path)} if bound else {})
    done = subprocess.run([sys.executable, "-c", ask], env=env, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(cores)
