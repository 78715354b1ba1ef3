"""The process group: joining it, what it says of this rank, leaving it. One process per GPU, or per group of cores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from campaign.errors import BadInput, CampaignError, Problem

_LAUNCHER_KEYS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True, slots=True)
class World:
    """This rank's place, as the process group reports it."""

    rank: int
    size: int
    device: torch.device
    backend: str

    @property
    def on_gpu(self) -> bool:
        """True when this rank computes on a GPU (NVIDIA or AMD)."""
        return self.device.type == "cuda"


@contextmanager
def process_group(init_timeout_s: float) -> Iterator[World]:
    """Join the group that the environment names, or one of this process alone; leave it at the end.

    NCCL (RCCL on AMD) when PyTorch sees a GPU, gloo otherwise. When the body raises in one of several ranks, the group
    is left as it is: destroying it could wait for the others for ever. The caller should end the process at once
    (`os._exit`), which is what tells them.
    """
    given = [key for key in _LAUNCHER_KEYS if key in os.environ]
    if given and len(given) < len(_LAUNCHER_KEYS):
        missing = [key for key in _LAUNCHER_KEYS if key not in os.environ]
        raise BadInput(
            Problem(
                f"{', '.join(given)} set, but not {', '.join(missing)}",
                hint="start the ranks with campaign or torchrun, or set none of them for a single process",
            )
        )
    device = _device()
    _limit_threads()
    backend = "nccl" if device.type == "cuda" else "gloo"
    place = {} if given else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    try:
        dist.init_process_group(
            backend,
            timeout=timedelta(seconds=init_timeout_s),
            device_id=device if backend == "nccl" else None,
            **place,
        )
    except (dist.DistError, RuntimeError, ValueError) as error:
        where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        raise CampaignError(
            Problem(
                f"rank {os.environ.get('RANK', '0')} could not join the process group at {where}: {_first_line(error)}",
                hint="look for the first rank that failed; a slow start may need a larger init_timeout_s",
            )
        ) from error
    try:
        yield World(dist.get_rank(), dist.get_world_size(), device, backend)
    except BaseException as error:
        # sys.exit(0) comes to all ranks at the same step (`campaign try`): they can leave as at the end
        if dist.get_world_size() == 1 or (isinstance(error, SystemExit) and not error.code):
            dist.destroy_process_group()
        if isinstance(error, RuntimeError) and _is_broken_collective(error):
            raise CampaignError(
                Problem(
                    f"a collective failed: {_first_line(error)}",
                    hint="another rank has ended or is stuck (train_timeout_s): look for the first rank that failed",
                )
            ) from error
        raise
    dist.destroy_process_group()


def set_timeout(seconds: float) -> None:
    """The timeout of collectives from now on; lower after the first step, when slow starts are over."""
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=seconds))


def _is_broken_collective(error: RuntimeError) -> bool:
    # gloo's errors have no class of their own
    return isinstance(error, dist.DistError) or any(words in str(error) for words in _GLOO_ERRORS)


_GLOO_ERRORS = ("gloo/transport", "pair closure", "Connection closed by peer", "Timed out waiting")


def _device() -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    local_rank, visible = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if visible > 1 and local_rank >= visible:
        raise BadInput(
            Problem(
                f"local rank {local_rank} has no GPU of its own: {visible} visible",
                key="ranks_per_node",
                allowed=f"at most {visible}",
            )
        )
    # one visible GPU: the launcher has given each rank its own
    device = torch.device("cuda", local_rank if visible > 1 else 0)
    torch.cuda.set_device(device)
    return device


def own_cores() -> int:
    """Cores of this rank, at least one: all that it may run on where campaign has bound it, else its share of them."""
    sharing = 1 if "CAMPAIGN_RANK_DIR" in os.environ else int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, len(os.sched_getaffinity(0)) // sharing)


def _limit_threads() -> None:
    """As many threads as this rank has cores, unless OMP_NUM_THREADS says otherwise."""
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(own_cores())


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
