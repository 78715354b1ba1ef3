"""Real ranks for tests: one process imports PyTorch once, then forks the ranks of each case (gloo on loopback).

Run as `python -m tests.training.rank_farm CASES.json FOLDER`; use it through `ranks.run_cases`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from campaign.record import Recorder
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
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    children = [_fork(case, place, rank, port) for rank in range(case["world"])]
    # a rank that was told to hang is ended here, once all others have ended
    codes = {rank: _code(pid) for rank, pid in enumerate(children) if rank != case["hangs"]}
    if case["hangs"] is not None:
        os.kill(children[case["hangs"]], signal.SIGKILL)
        codes[case["hangs"]] = _code(children[case["hangs"]])
    return [codes[rank] for rank in range(case["world"])]


def _code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _fork(case: dict[str, Any], place: Path, rank: int, port: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(place / f"{rank}.{name}", os.O_WRONLY | os.O_CREAT, 0o600), number)
        os.environ |= {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(case["world"]),
            "LOCAL_WORLD_SIZE": str(case["world"]),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1",
            "CAMPAIGN_RANK_DIR": str(place),
        }
        import torch

        torch.set_num_threads(1)
        _sabotage(case, rank)
        code = hydrology.main(["--params", json.dumps(case["params"]), "--data", case["data"]])
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


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
