"""Processes: ending them for good, core dumps, and whether the kernel killed one for want of memory."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from pathlib import Path


def no_core_dumps() -> None:
    """A crash of thousands of ranks must not fill shared storage with core files. Inherited by children."""
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def many_files() -> None:
    """Let this process hold a connection per node: raise the soft limit of open files to the hard one."""
    with contextlib.suppress(ValueError, OSError):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def signal_group(group: int, number: signal.Signals) -> None:
    """Send a signal to a process group that may be gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def kill_marked(marker: str, spare: frozenset[int] = frozenset()) -> int:
    """SIGKILL every process of ours whose environment holds `marker`, except `spare` and this one; how many.

    Ranks may leave processes behind that have left their group (daemons, workers of workers). All of them carry the
    node-local folder in their environment.
    """
    wanted = marker.encode()
    uid = os.getuid()
    killed = 0
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) in spare or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if entry.stat().st_uid == uid and wanted in Path(entry.path, "environ").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)
                killed += 1
    return killed


def oom_kills() -> int | None:
    """A count that rises when the kernel kills for memory within this job's control groups; None when unknown."""
    counters = [count for path in _memory_groups() if (count := _oom_kill_counter(path)) is not None]
    return sum(counters) if counters else None


def _memory_groups() -> list[Path]:
    """Folders of the memory control group of this process, innermost first (cgroup v1 and v2)."""
    groups: list[Path] = []
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return groups
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root = Path("/sys/fs/cgroup")
        elif "memory" in controllers.split(","):
            root = Path("/sys/fs/cgroup/memory")
        else:
            continue
        inner = root / path.lstrip("/")
        chain = [folder for folder in (inner, *inner.parents) if folder != root and root in folder.parents]
        # Slurm: .../job_N/step_M/user/task_0. Above the job are the jobs of others.
        job = next((place for place, folder in enumerate(chain) if folder.name.startswith("job_")), 0)
        groups += chain[: job + 1]
    return groups


def _oom_kill_counter(group: Path) -> int | None:
    for name in ("memory.events", "memory.oom_control"):
        with contextlib.suppress(OSError, ValueError):
            for line in (group / name).read_text(encoding="utf-8").splitlines():
                key, _, value = line.partition(" ")
                if key == "oom_kill":
                    return int(value)
    return None
