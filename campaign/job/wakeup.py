"""Signals for a selector loop: noted in order, and the loop wakes up for them."""

from __future__ import annotations

import signal
import socket
from collections import deque
from collections.abc import Iterable
from types import FrameType


class Wakeup:
    """Catches signals for one process; register `fileno()` with the selector and call `take()` when it is readable."""

    def __init__(self, numbers: Iterable[signal.Signals]) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._seen: deque[signal.Signals] = deque()
        for number in numbers:
            signal.signal(number, self._note)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)

    def fileno(self) -> int:
        """For selectors."""
        return self._reader.fileno()

    def take(self) -> list[signal.Signals]:
        """The signals since the last call, oldest first."""
        try:
            while self._reader.recv(4096):
                pass
        except BlockingIOError:
            pass
        seen: list[signal.Signals] = []
        while self._seen:
            seen.append(self._seen.popleft())
        return seen

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._seen.append(signal.Signals(number))
