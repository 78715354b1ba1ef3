"""Slurm's own parsers as oracles: libslurmfull through ctypes, and scontrol without a controller.

The library runs in a process of its own: it is not ours, and it may end its process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_ASK = """
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1])
library.slurm_time_str2secs.restype = ctypes.c_int
library.str_to_mbytes.restype = ctypes.c_uint64
ask = {"time": library.slurm_time_str2secs, "size": library.str_to_mbytes}[sys.argv[2]]
print(json.dumps([ask(text.encode()) for text in json.load(sys.stdin)]))
"""


def _library() -> Path:
    return next(Path("/usr/lib").glob("*/slurm-wlm/libslurmfull.so"))


def _ask(what: str, texts: Sequence[str]) -> list[int]:
    command = [sys.executable, "-c", _ASK, str(_library()), what]
    done = subprocess.run(command, input=json.dumps(list(texts)), capture_output=True, text=True, check=True)
    answers: list[int] = json.loads(done.stdout)
    return answers


def seconds(texts: Sequence[str]) -> list[int | None]:
    """What Slurm makes of times; None: refused, -1: unlimited."""
    return [None if answer == -2 else answer for answer in _ask("time", texts)]


def mebibytes(texts: Sequence[str]) -> list[int | None]:
    """What Slurm makes of sizes; None: refused."""
    return [None if answer >= 2**63 else answer for answer in _ask("size", texts)]


def hostnames(lists: Sequence[str], folder: Path) -> list[list[str]]:
    """What `scontrol show hostnames` makes of node lists."""
    config = folder / "slurm.conf"
    config.write_text("ClusterName=none\nSlurmctldHost=localhost\n")
    answers = []
    for text in lists:
        done = subprocess.run(
            ["scontrol", "show", "hostnames", text],
            env={"SLURM_CONF": str(config), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        )
        answers.append(done.stdout.split())
    return answers
