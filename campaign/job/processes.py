"""Processes: ending them for good, and limits that they hand on to their children."""

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
