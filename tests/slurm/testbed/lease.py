"""Sharing one bed between test processes: the first one starts it, the last one stops it.

The lock file beside the root (`<root>.lock`) is held shared by everyone who uses the bed and exclusively by who starts
or stops it, so pytest-xdist workers and several pytest sessions of one clone need nothing else; a killed process
drops its lock. A bed that was started by hand is used and left running.
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

    def _open(self) -> None:
        self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def _is_current(self) -> bool:
        """False when somebody has deleted the file that we hold meanwhile."""
        try:
            return os.path.samestat(os.fstat(self._handle), self.path.stat())
        except FileNotFoundError:
            return False

    def exclusive(self, *, wait: bool) -> bool:
        """Be alone; False when others hold it and `wait` is False."""
        while True:
            self._open()
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                self.release()
                return False
            if self._is_current():
                return True
            self.release()

    def shared(self) -> bool:
        """From exclusive to shared. The kernel does that in two steps: False when it wasn't ours in between."""
        fcntl.flock(self._handle, fcntl.LOCK_SH)
        return self._is_current()

    def release(self) -> None:
        """Let go."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def remove(self) -> None:
        """Delete the file (while held exclusively) and let go."""
        self.path.unlink(missing_ok=True)
        self.release()


def lock_of(settings: Settings) -> Lock:
    """The lock of the bed at `settings.root`."""
    return Lock(settings.root.with_name(settings.root.name + ".lock"))


@contextlib.contextmanager
def leased(settings: Settings) -> Iterator[Testbed]:
    """A whole bed for tests, shared with others that ask for the same root.

    Raises TestbedError when it doesn't start, or when one with other settings is in use there.
    """
    lock = lock_of(settings)
    while True:
        lock.exclusive(wait=True)
        bed = Testbed(settings)
        if not (bed.complete and bed.serves(settings)):
            bed = _fresh(bed, settings, lock)
        if lock.shared() and bed.complete:
            break
        lock.release()
    try:
        yield bed
    finally:
        lock.release()
        if lock.exclusive(wait=False):
            if not bed.by_hand:
                bed.stop()
            lock.remove()


def _fresh(bed: Testbed, settings: Settings, lock: Lock) -> Testbed:
    """Start a bed; we hold the lock alone, so nobody uses what is there."""
    try:
        bed.stop()
        bed = Testbed(settings)
        bed.start()
    except BaseException:
        lock.remove()
        raise
    return bed


@contextlib.contextmanager
def alone(settings: Settings) -> Iterator[None]:
    """For start and stop by hand. Raises TestbedError when tests use the bed."""
    lock = lock_of(settings)
    if not lock.exclusive(wait=False):
        raise TestbedError(f"tests use the test bed at {settings.root} just now")
    try:
        yield
    finally:
        lock.remove()
