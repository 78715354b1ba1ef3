"""Why a run failed: from exit codes, last lines and what the scheduler said to a `fail_class`. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

State = Literal["done", "failed", "timeout", "interrupted", "cancelled"]
FailClass = Literal["node", "fabric", "preempted", "oom_host", "oom_gpu", "config", "user", "quota", "hang", "unknown"]

LAST_LINES = 60
"""Only the end of what a rank printed tells why it ended; warnings further up don't count."""

PATTERNS: tuple[tuple[FailClass, str], ...] = (
    (
        "oom_gpu",
        r"CUDA out of memory|HIP out of memory|OutOfMemoryError: (CUDA|HIP)|CUDA error: out of memory"
        r"|hipErrorOutOfMemory|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED",
    ),
    (
        "node",
        r"uncorrectable ECC|\bXid\b.*\b(48|63|64|74|79|94|95)\b|fallen off the bus|hipErrorNoDevice"
        r"|No CUDA GPUs are available|no CUDA-capable device|CUDA driver initialization failed"
        r"|Input/output error|Stale file handle|Transport endpoint is not connected",
    ),
    ("quota", r"Disk quota exceeded|No space left on device|\bEDQUOT\b|\bENOSPC\b"),
    (
        "oom_host",
        r"^MemoryError\b|Cannot allocate memory|DefaultCPUAllocator: can't allocate memory|std::bad_alloc"
        r"|oom[-_]kill|Unable to allocate .* for an array|insufficient shared memory",
    ),
    (
        "fabric",
        r"ncclRemoteError|ncclSystemError|NCCL WARN.*(IB|ibv|socket|connect)|ibv_\w+.* failed|Got completion from peer"
        r"|unhandled system error|Connect(ion)? timed out|No route to host|Network is unreachable"
        r"|Connection (reset|closed) by peer|Broken pipe.*(gloo|nccl)|Socket Timeout",
    ),
    ("hang", r"Watchdog caught collective operation timeout|collective operation timeout|Timed out waiting .*ms for"),
    (
        "config",
        r"^(ModuleNotFoundError|ImportError)\b|can't open file|No module named|FileNotFoundError.*'[^']*python"
        r"|unrecognized arguments|the following arguments are required|invalid choice:|has no function|^BadInput\b"
        r"|campaign\.errors\.BadInput",
    ),
    ("user", r"^Traceback \(most recent call last\)|^[A-Za-z_][\w.]*(Error|Exception)\b"),
)
"""First match wins: the rarer and graver above the commoner. A traceback alone is the user's code."""

_COMPILED = tuple((name, re.compile(pattern, re.MULTILINE)) for name, pattern in PATTERNS)

SCHEDULER: tuple[tuple[FailClass, str], ...] = (
    ("preempted", r"DUE TO PREEMPTION"),
    (
        "node",
        r"Node failure on|DUE TO NODE FAILURE|NODE FAIL|Communication connection failure|node .* is not responding",
    ),
    ("oom_host", r"oom[-_ ]kill|Out Of Memory"),
    (
        "config",
        r"Unable to create step|Requested node configuration|invalid option|unrecognized option|Invalid|"
        r"More processors requested|execve\(\)|No such file or directory|Unable to satisfy",
    ),
)
_SCHEDULER = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in SCHEDULER)


@dataclass(frozen=True, slots=True)
class Failure:
    """How the first failing rank ended, and what else is known."""

    rank: int
    node: str
    code: int | None
    signal: int | None
    lines: Sequence[str] = field(default=())
    oom_kill: bool = False
    """The kernel has killed in the job's memory control group meanwhile."""


def fail_class(failure: Failure) -> FailClass:
    """The class of a rank's failure."""
    if failure.oom_kill:
        return "oom_host"
    found = match_lines(failure.lines)
    # a traceback alone tells less than the way it ended
    if found is not None and found != "user":
        return found
    if failure.code in (126, 127):
        return "config"
    if failure.signal == signal.SIGBUS:
        # a memory map without room behind it: /dev/shm or a disk was full
        return "quota"
    return "unknown" if failure.signal is not None else "user"


def match_lines(lines: Sequence[str]) -> FailClass | None:
    """The class that the last lines of a rank show; None when they show none."""
    text = "\n".join(lines[-LAST_LINES:])
    return next((name for name, pattern in _COMPILED if pattern.search(text)), None)


def scheduler_class(lines: Sequence[str]) -> FailClass | None:
    """The class that srun's own messages show; None when they show none."""
    text = "\n".join(lines)
    return next((name for name, pattern in _SCHEDULER if pattern.search(text)), None)


def signal_name(number: int) -> str:
    """`SIGKILL` for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def describe(failure: Failure) -> str:
    """One line for people: `rank 3 on jwb0002 exited with code 1: ValueError: ...`."""
    how = f"was killed by {signal_name(failure.signal)}" if failure.signal else f"exited with code {failure.code}"
    last = next((line.strip() for line in reversed(failure.lines) if line.strip()), "")
    text = f"rank {failure.rank} on {failure.node} {how}"
    if failure.oom_kill:
        text += " (out of memory)"
    return f"{text}: {last[:300]}" if last else text
