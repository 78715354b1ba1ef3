"""Who reads which sample: the loader of a rank, and the audit of what all ranks have really read."""

from __future__ import annotations

import hashlib
import multiprocessing
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler

from campaign.errors import BadInput, Problem
from training.distributed import World
from training.samples import Batch, Samples


class Shard:
    """A rank's share of `samples` in batches, newly shuffled each epoch.

    With `sharded`, PyTorch's DistributedSampler deals one shuffled order out to the ranks, so that the ranks' batches
    of a step together are the same samples at every world size. It pads the order to a multiple of the world size; a
    padded sample is computed but has weight 0 in the loss. Without `sharded`, each rank reads every sample.
    """

    def __init__(
        self, samples: Samples, world: World, local_batch: int, *, seed: int, sharded: bool, num_workers: int = 0
    ) -> None:
        if sharded and len(samples) < world.size:
            raise BadInput(
                Problem(
                    f"{len(samples)} training samples for {world.size} ranks: some would have none",
                    key="fraction",
                    hint="a larger fraction, a larger data set, or fewer ranks",
                )
            )
        self.samples, self.local_batch, self.sharded, self.world = samples, local_batch, sharded, world
        self._generator = torch.Generator()
        self._seed = seed
        sampler = (
            DistributedSampler(samples, num_replicas=world.size, rank=world.rank, shuffle=True, seed=seed)
            if sharded
            else RandomSampler(samples, generator=self._generator)
        )
        self.loader: DataLoader[Batch] = DataLoader(
            samples,
            batch_size=local_batch,
            sampler=sampler,
            collate_fn=_as_it_is,
            num_workers=num_workers,
            pin_memory=world.on_gpu,
            persistent_workers=num_workers > 0,
            # a fork would copy threads' locks and the GPU's context; workers of one server share its imports
            multiprocessing_context=_workers() if num_workers else None,
            worker_init_fn=_begin_worker if num_workers else None,
        )

    def __len__(self) -> int:
        """Steps of an epoch; the same on every rank."""
        return len(self.loader)

    def set_epoch(self, epoch: int) -> None:
        """Shuffle anew: the order of epoch `epoch`."""
        if isinstance(self.loader.sampler, DistributedSampler):
            self.loader.sampler.set_epoch(epoch)
        else:
            self._generator.manual_seed(self._seed + epoch)

    def global_samples(self, step: int) -> int:
        """Samples that count in step `step` of an epoch, over all ranks."""
        if not self.sharded:
            return self.world.size * min(self.local_batch, len(self.samples) - step * self.local_batch)
        global_batch = self.local_batch * self.world.size
        return min(global_batch, len(self.samples) - step * global_batch)

    def counted(self, step: int, local: int) -> int:
        """How many of this rank's first samples in that step count; the rest is padding."""
        if not self.sharded:
            return local
        # local sample j is number step * global_batch + j * size + rank of the shuffled order
        left = len(self.samples) - step * self.local_batch * self.world.size - self.world.rank
        return max(0, min(local, -(-left // self.world.size)))


class Audit(NamedTuple):
    """What all ranks together read in one epoch."""

    seen: int
    unique: int
    order_hash: str

    @property
    def duplication(self) -> float:
        """How often a sample was read on average: 1 is right, the world size means that nothing was sharded."""
        return self.seen / self.unique


def audit(read: torch.Tensor, total: int, world: World) -> Audit:
    """Count what was read in an epoch; a collective call, to be made outside of what is timed.

    read: [n] int64, the samples that this rank read, in order. total: samples that there are. The ranks' bitmaps are
    combined by one all-reduce of `total` bytes; `order_hash` covers the order of all ranks.
    """
    bitmap = torch.zeros(total, dtype=torch.uint8)
    bitmap[read] = 1
    own = int.from_bytes(hashlib.sha256(read.numpy().tobytes()).digest()[:7])
    bitmap, seen = bitmap.to(world.device), torch.tensor([len(read)], device=world.device)
    hashes = torch.zeros(world.size, dtype=torch.int64, device=world.device)
    hashes[world.rank] = own
    dist.all_reduce(bitmap, op=dist.ReduceOp.MAX)
    dist.all_reduce(seen)
    dist.all_reduce(hashes)
    order = hashlib.sha256(hashes.cpu().numpy().tobytes()).hexdigest()[:16]
    return Audit(int(seen), int(bitmap.sum(dtype=torch.int64)), order)


MOST_WORKERS = 8
"""More than these wait for memory, not for each other."""


def auto_workers(cores: int) -> int:
    """Loader processes of a rank with so many cores: one core is the rank's own."""
    return max(0, min(MOST_WORKERS, cores - 1))


def _workers() -> Any:
    """Processes forked from a server that has imported PyTorch once and has no thread of this rank."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["training.samples"])
    return context


def _begin_worker(worker: int) -> None:
    """One thread each: workers are for parallel reading, and the rank's threads have the cores."""
    torch.set_num_threads(1)


def _as_it_is(batch: object) -> Batch:
    return cast(Batch, batch)
