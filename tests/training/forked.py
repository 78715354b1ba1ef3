"""Ranks as forks of one process that has imported PyTorch, and the process that forks them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def fork_ranks(world: int, outputs: str, body: Callable[[int], int]) -> list[int]:
    """Fork `world` ranks in an environment as a launcher makes it; their process ids.

    outputs: path before `<rank>.out` and `<rank>.err`. body: rank -> exit code.
    """
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    return [_fork(world, rank, port, outputs, body) for rank in range(world)]


def exit_code(pid: int) -> int:
    """Wait for a rank; negative: the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _fork(world: int, rank: int, port: int, outputs: str, body: Callable[[int], int]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{outputs}{rank}.{name}", os.O_WRONLY | os.O_CREAT, 0o600), number)
        os.environ |= {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(world),
            "LOCAL_WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
        }
        import torch

        torch.set_num_threads(1)
        code = body(rank)
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run_farm(module: str, *words: str | Path, timeout_s: float) -> None:
    """Run the process that forks, and end what is left of it and of its ranks when the time is over."""
    farm = subprocess.Popen([sys.executable, "-m", module, *map(str, words)], cwd=ROOT, start_new_session=True)
    try:
        code = farm.wait(timeout_s)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(farm.pid, signal.SIGKILL)
    assert code == 0, f"{module} ended with {code}"
