"""Sharing one bed between test processes: the first one starts it, the last one stops it.

Beside the root lie two lock files. `<root>.users` is held shared by everyone who uses the bed; `<root>.lock` is held
for as long as somebody comes, starts, leaves or stops. So pytest-xdist workers and several pytest sessions of one
clone need nothing else, and a killed process drops its locks. A bed that was started by hand is used and left running.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from tests.slurm.testbed.bed import Testbed, TestbedError
from tests.slurm.testbed.settings import Settings


class Lock:
    """flock on a file that its last holder deletes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle = -1

    def acquire(self, mode: int) -> bool:
        """Take it; `mode` as for flock. False when others hold it and `mode` has LOCK_NB."""
        while True:
            self.release()
            self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            try:
                fcntl.flock(self._handle, mode)
                # somebody may have deleted the file while we waited for it
                if os.path.samestat(os.fstat(self._handle), self.path.stat()):
                    return True
            except FileNotFoundError:
                continue
            except BlockingIOError:
                self.release()
                return False

    def release(self) -> None:
        """Let go."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def remove(self) -> None:
        """Delete the file (we hold it alone) and let go."""
        self.path.unlink(missing_ok=True)
        self.release()


class Door:
    """Who may come in: both locks of the bed at `root`."""

    def __init__(self, root: Path) -> None:
        self._door = Lock(root.with_name(root.name + ".lock"))
        self._users = Lock(root.with_name(root.name + ".users"))

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else comes, leaves, starts or stops meanwhile. The file goes when no user is left."""
        self._door.acquire(fcntl.LOCK_EX)
        try:
            yield
        finally:
            if self._users.path.exists():
                self._door.release()
            else:
                self._door.remove()

    def enter(self) -> None:
        """Become a user, while the door is held."""
        self._users.acquire(fcntl.LOCK_SH)

    def leave(self) -> None:
        """Be a user no longer."""
        self._users.release()

    def is_empty(self) -> bool:
        """True when nobody uses the bed; while the door is held."""
        if not self._users.acquire(fcntl.LOCK_EX | fcntl.LOCK_NB):
            return False
        self._users.remove()
        return True


@contextlib.contextmanager
def leased(settings: Settings) -> Iterator[Testbed]:
    """A whole bed for tests, shared with others that ask for the same root.

    Raises TestbedError when it doesn't start, or when others use one with other settings, or a broken one.
    """
    if os.geteuid() != 0:
        yield _of_root(settings)
        return
    door = Door(settings.root)
    with door.held():
        bed = Testbed(settings)
        if not (bed.complete and bed.serves(settings)):
            _must_be_empty(door, bed)
            by_hand = bed.by_hand
            bed.stop()
            bed = Testbed(settings)
            bed.start()
            if by_hand:
                bed.mark_by_hand()
        door.enter()
    try:
        yield bed
    finally:
        with door.held():
            door.leave()
            if door.is_empty() and not bed.by_hand:
                bed.stop()


def _of_root(settings: Settings) -> Testbed:
    """For an ordinary user: the bed that root has started by hand, which nobody but root stops."""
    bed = Testbed(settings)
    if not bed.complete:
        raise TestbedError(f"only root starts a test bed, and there is none at {settings.root}: sudo make testbed")
    return bed


@contextlib.contextmanager
def alone(settings: Settings) -> Iterator[None]:
    """For start and stop by hand. Raises TestbedError when tests use the bed."""
    door = Door(settings.root)
    with door.held():
        _must_be_empty(door, Testbed(settings))
        yield


def _must_be_empty(door: Door, bed: Testbed) -> None:
    if not door.is_empty():
        state = f"has lost {', '.join(bed.dead)}" if bed.exists and bed.dead else "has other settings than yours"
        raise TestbedError(f"tests use the test bed at {bed.settings.root}, which {state}: wait until they have ended")
