"""Real ranks for tests: one process imports PyTorch once, then forks the ranks of each case (gloo on loopback).

Run as `python -m tests.training.rank_farm CASES.json FOLDER`; use it through `ranks.run_cases`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from campaign.record import Recorder
from tests.training.forked import exit_code, fork_ranks
from training.workloads import hydrology


def main() -> None:
    import training.loop  # noqa: F401  (the slow import, once for all ranks; no OpenMP thread has run before the forks)

    cases, folder = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    for number, case in enumerate(cases):
        place = folder / str(number)
        place.mkdir()
        codes = _run(case, place)
        (place / "codes.json").write_text(json.dumps(codes))


def _run(case: dict[str, Any], place: Path) -> list[int]:
    def body(rank: int) -> int:
        os.environ["CAMPAIGN_RANK_DIR"] = str(place)
        _sabotage(case, rank)
        return hydrology.main(["--params", json.dumps(case["params"]), "--data", case["data"]])

    children = fork_ranks(case["world"], f"{place}/", body)
    # a rank that was told to hang is ended here, once all others have ended
    codes = {rank: exit_code(pid) for rank, pid in enumerate(children) if rank != case["hangs"]}
    if case["hangs"] is not None:
        os.kill(children[case["hangs"]], signal.SIGKILL)
        codes[case["hangs"]] = exit_code(children[case["hangs"]])
    return [codes[rank] for rank in range(case["world"])]


def _sabotage(case: dict[str, Any], rank: int) -> None:
    """Let this rank raise, or stop doing anything, after its fifth step."""
    if rank not in (case["raises"], case["hangs"]):
        return
    record = Recorder.step

    def step(self: Recorder, epoch: int, step: int, **parts: Any) -> None:
        record(self, epoch, step, **parts)
        if step == 4:
            if rank == case["raises"]:
                raise ValueError("sabotaged")
            while True:
                time.sleep(60)

    Recorder.step = step  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
