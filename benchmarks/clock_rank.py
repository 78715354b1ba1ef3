"""One of two ranks that train with the step clock on: prints the microseconds a step that were spent in the clock.

    python -m benchmarks.clock_rank RANK PORT FOLDER ROUNDS

After some real steps, so that DDP has something to tell, the calls that a step makes are made alone, over and over;
the recorder writes as in a run.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn

from campaign.record import Recorder
from training import distributed
from training.clock import StepClock
from training.strategies import Request, Strategy, prepare

STEPS = 400
WARM = 20


def main() -> None:
    """Rank 0 prints a JSON list: a number for each round."""
    rank, port, folder, rounds = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1",
                   "GLOO_SOCKET_IFNAME": "lo"}  # fmt: skip
    recorder = Recorder(folder / f"{rank}.bin", rank, cap_bytes=1 << 40)
    with distributed.process_group(120.0) as world:
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
        request = Request(lambda parameters: torch.optim.SGD(parameters, lr=0.01), 32, 1, 1.0)
        strategy = prepare("ddp", model, world, request)
        clock = StepClock(recorder, world)
        batch, factor = torch.randn(32, 64), torch.tensor(1.0)
        for _ in range(WARM):  # DDP's timers begin with the first steps
            strategy.backward(strategy.model(batch).square().mean())
            strategy.step(factor, 1.0)
        loss = torch.tensor(0.5)
        found = [us_per_step(clock, strategy, loss) for _ in range(rounds)]
    recorder.close()
    if rank == 0:
        print(json.dumps(found))


def us_per_step(clock: StepClock, strategy: Strategy, loss: torch.Tensor) -> float:
    """Microseconds of all that the loop asks of clock, strategy and recorder in a step, and of nothing else."""
    started = time.perf_counter()
    for step in range(STEPS):
        clock.begin()
        clock.batch_here()
        clock.mark("h2d_s")
        clock.mark("forward_s")
        clock.mark("backward_s")
        clock.mark("optimizer_s")
        clock.end(0, step, 32, loss, strategy.exposed(step))
    clock.drain()
    return (time.perf_counter() - started) / STEPS * 1e6


if __name__ == "__main__":
    main()
