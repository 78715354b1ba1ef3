"""One command at a time queues: a lock beside the ledger that says who has it.

A POSIX lock: it works between login nodes on GPFS, NFS and Lustre with `flock`, and vanishes with its process. Reading
needs no turn, and each change of the ledger is a transaction of its own anyway: the turn keeps two submissions from
filling the same room twice.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from campaign.errors import BadInput, NotNow, Problem
from campaign.slurm.commands import user_name
from campaign.submit.ledger import now

TURN_FILE = "turn.lock"
WAIT_S = 60.0
PAUSE_S = 0.2
UNSIGNED_S = 2.0
"""How long a lock may be held before its holder has written who it is; then it is told without a name."""
SOMEBODY = "another campaign command"
BUSY = frozenset({errno.EACCES, errno.EAGAIN})
NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP})


@contextlib.contextmanager
def turn(ledger_path: Path, command: str, *, note: Callable[[str], None], wait_s: float = WAIT_S) -> Iterator[None]:
    """Hold the project's turn. Waits `wait_s`, saying for whom; raises NotNow that names host, user, pid and command.

    A file system whose locks don't work is told (BadInput): two submissions at once could not be told apart there.
    """
    path = ledger_path.with_name(TURN_FILE)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        _wait(file, path, note, time.monotonic() + wait_s)
        _sign(file, command)
        try:
            yield
        finally:
            file.truncate(0)


def _wait(file: IO[str], path: Path, note: Callable[[str], None], deadline: float) -> None:
    told, nameless_until = False, time.monotonic() + UNSIGNED_S
    while not _lock(file, path):
        signed, now_s = holder(path), time.monotonic()
        owner = signed or SOMEBODY
        known = signed is not None or now_s > nameless_until
        if known and now_s > deadline:
            raise NotNow(Problem(f"{owner} is queueing runs of this project", str(path), hint="the same command again"))
        if known and not told:
            note(f"waiting for {owner}")
            told = True
        time.sleep(PAUSE_S)


def _lock(file: IO[str], path: Path) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in BUSY:
            return False
        if error.errno in NO_LOCKS:
            raise BadInput(
                Problem("locks don't work on this file system, so two submissions could not be kept apart", str(path),
                        hint="keep the project on another one (mount Lustre with -o flock)")
            ) from error  # fmt: skip
        raise
    return True


def _sign(file: IO[str], command: str) -> None:
    """Leave in the file who holds the lock. What a killed holder left there is replaced."""
    about = {"host": socket.gethostname(), "user": user_name(), "pid": os.getpid(), "command": command, "since": now()}
    file.seek(0)
    file.truncate()
    file.write(json.dumps(about) + "\n")
    file.flush()


def holder(path: Path) -> str | None:
    """Who holds the turn, in words; None when the file doesn't say (yet). Of use only while the lock is taken."""
    with contextlib.suppress(OSError, ValueError):
        about: Any = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(about, dict):
            return (f"`campaign {about.get('command')}` of {about.get('user')} on {about.get('host')} "
                    f"(pid {about.get('pid')}, since {str(about.get('since'))[:19]})")  # fmt: skip
    return None
