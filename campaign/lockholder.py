"""Who holds a POSIX lock on a file, in words: for the message of a command that had to give up waiting."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import socket
import struct
from pathlib import Path

from campaign.errors import NotNow, Problem

_FLOCK = struct.Struct("hhqqi4x")
"""struct flock of 64-bit Linux: type, whence, start, len, pid."""


def busy_ledger(path: Path, error: Exception) -> NotNow | None:
    """What is said when SQLite's error means that another process writes the ledger; None: it means something else."""
    if "locked" not in str(error) and "busy" not in str(error):
        return None
    who = holder(path) or "another campaign command"
    return NotNow(Problem(f"{who} is writing the ledger", str(path), hint="the same command again, later"))


def holder(path: Path) -> str | None:
    """Process that holds a lock on `path`; None when there is none now, or the system doesn't say.

    Only for a process that holds no lock on the file itself: closing the file here would give it up.
    """
    with contextlib.suppress(OSError, struct.error), path.open("rb+") as file:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(file.fileno(), fcntl.F_GETLK, asked))
        if kind == fcntl.F_UNLCK:
            return None
        if pid <= 0:
            return "a process on another host"
        return _process(pid)
    return None


def _process(pid: int) -> str:
    """A process of this host; with a lock from elsewhere the number may be one of that host."""
    here = Path("/proc") / str(pid)
    try:
        words = (here / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        uid = here.stat().st_uid
    except OSError:
        return f"pid {pid} of another host"
    user = str(uid)
    with contextlib.suppress(KeyError):
        user = pwd.getpwuid(uid).pw_name
    return f"pid {pid} of {user} on {socket.gethostname()} ({words[:80]})"
