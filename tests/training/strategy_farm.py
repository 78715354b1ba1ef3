"""All strategies and number formats of one world size in one process group: 20 SGD steps each, losses as JSON.

Run as `python -m tests.training.strategy_farm PLAN.json FOLDER`; use it through `tests.training.test_strategies`.
PLAN: {"data": PATH, "groups": {NAME: {"world": 2, "lie": BOOL, "cases": {NAME: params}}}}. With `lie` the environment
of each rank says, once the process group is there, that the rank is alone: nothing may read the world's size there.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from tests.training.forked import exit_code, fork_ranks


def main() -> None:
    plan, folder = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    os.environ |= {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    # slow imports, once for all ranks; no OpenMP thread has run before the forks
    import training.loop  # noqa: F401
    from training import strategies

    for name in strategies.NAMES:
        strategies.load(name)
    codes = {}
    for name, group in plan["groups"].items():
        children = fork_ranks(group["world"], f"{folder / name}-", partial(run, plan["data"], group, folder / name))
        codes[name] = [exit_code(pid) for pid in children]
    (folder / "codes.json").write_text(json.dumps(codes))


def run(data: str, group: dict[str, Any], out: Path, rank: int) -> int:
    from campaign.record import Recorder
    from training import distributed, samples, settings
    from training.data.layout import read_info
    from training.loop import train
    from training.profile import profile

    series = samples.load(read_info(Path(data)))
    with distributed.process_group(120.0) as place:
        if group["lie"]:
            os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        found = {}
        for name, params in group["cases"].items():
            chosen, started = settings.parse(params), time.monotonic()
            parts = samples.build(series, chosen.window)
            if chosen.profile:
                seen = profile(chosen, parts, place, Recorder.from_env())
                found[name] = {"collectives": seen.collectives, "bytes": seen.bytes,
                               "fraction": seen.computation_fraction}  # fmt: skip
                write(out, rank, found)
                continue
            trained = train(chosen, parts, place, Recorder.from_env(), keep_losses=True)
            last = trained.epochs[-1]
            found[name] = {
                "losses": trained.losses,
                "val_losses": [epoch.val_loss for epoch in trained.epochs],
                "seen": last.samples_seen,
                "unique": last.samples_unique,
                "seconds": time.monotonic() - started,
            }
            write(out, rank, found)
    return 0


def write(out: Path, rank: int, found: dict[str, Any]) -> None:
    if rank == 0:
        out.with_suffix(".json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
