"""The node-local folder of a run: made, cleaned up after jobs that could not, removed."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import socket
import time
from pathlib import Path

from campaign.job.clock import process_start_ticks

NAME = re.compile(r"[0-9a-f]{16}\.a[0-9]+\.[0-9a-f]{8}")
"""Only folders of this form are ever removed. Short: sockets below $TMPDIR may have paths of 107 bytes only."""
OWNER_FILE = "owner.json"
YOUNG_S = 600.0


class NodeFolder:
    """`<node_local>/<run_id>.a<N>.<random>`, mode 0700, locked as long as its agent lives."""

    def __init__(self, node_local: Path, run_id: str, attempt: int) -> None:
        """Make the folder. Raises OSError when the place is full or may not be written."""
        node_local.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = node_local / f"{run_id}.a{attempt}.{os.urandom(4).hex()}"
        self.path.mkdir(mode=0o700)
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with contextlib.suppress(OSError):
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        owner = {"host": socket.gethostname(), "pid": os.getpid(), "start": process_start_ticks(os.getpid())}
        try:
            (self.path / OWNER_FILE).write_text(json.dumps(owner), encoding="utf-8")
        except OSError:
            self.remove()
            raise

    def remove(self) -> None:
        """Remove the folder and all below it."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        shutil.rmtree(self.path, ignore_errors=True)


def clean_stale(node_local: Path) -> list[str]:
    """Remove folders of this user whose agent has died without a trace on this node; their names.

    A folder goes only when its name is of our form, it is ours, its owner was on this host and no longer runs, and
    nobody holds its lock: so a `node_local` that is shared by mistake costs nobody his data.
    """
    removed = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(node_local):
            if NAME.fullmatch(entry.name) and _is_stale(Path(entry.path)):
                shutil.rmtree(entry.path, ignore_errors=True)
                removed.append(entry.name)
    return removed


def _is_stale(folder: Path) -> bool:
    try:
        state = folder.lstat()
        if state.st_uid != os.getuid() or time.time() - state.st_mtime < 0:
            return False
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        owner = json.loads((folder / OWNER_FILE).read_text(encoding="utf-8"))
        runs = process_start_ticks(int(owner["pid"])) == owner["start"]
        return bool(owner["host"] == socket.gethostname() and not runs)
    except OSError as error:
        # made, but its owner was never written (killed in between, or the disk was full)
        return isinstance(error, FileNotFoundError) and time.time() - state.st_mtime > YOUNG_S
    except (ValueError, KeyError, TypeError):
        return time.time() - state.st_mtime > YOUNG_S
    finally:
        os.close(fd)
