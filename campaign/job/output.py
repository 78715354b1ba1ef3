"""What ranks print: the last lines of each, and rank 0's console for the head, in bounded memory."""

from __future__ import annotations

from collections import deque

TAIL_LINES = 200
LINE_BYTES = 4096
CONSOLE_BYTES = 512 << 10


class LineTail:
    """The last lines of a stream; a line longer than `line_bytes` is cut."""

    def __init__(self, lines: int = TAIL_LINES, line_bytes: int = LINE_BYTES) -> None:
        self._lines: deque[bytes] = deque(maxlen=lines)
        self._line_bytes = line_bytes
        self._open = b""
        """The beginning of the line that has no end yet, at most line_bytes of it."""

    def feed(self, data: bytes) -> None:
        """More of the stream."""
        first, newline, rest = data.partition(b"\n")
        self._open = (self._open + first[: self._line_bytes])[: self._line_bytes]
        if not newline:
            return
        self._lines.append(self._open)
        parts = rest.rsplit(b"\n", self._lines.maxlen or 1)
        self._open = parts.pop()[: self._line_bytes]
        # with more lines than we keep, the first part holds all the older ones
        self._lines.extend(part[part.rfind(b"\n") + 1 :][: self._line_bytes] for part in parts)

    def lines(self) -> list[str]:
        """The lines, the unfinished one included."""
        whole = [*self._lines, self._open] if self._open else list(self._lines)
        return [line.decode("utf-8", "replace") for line in whole[-(self._lines.maxlen or 0) :]]

    def last(self) -> str:
        """The last line that isn't blank; empty when there is none."""
        return next((line for line in reversed(self.lines()) if line.strip()), "")


class Pending:
    """What has been printed since it was last taken.

    Nothing of the stream's first `limit` bytes is left out; of what follows, between two takes, only the last `limit`
    bytes are kept and the rest is counted. So the last `limit` bytes of the stream always come without a gap.
    """

    def __init__(self, limit: int = CONSOLE_BYTES) -> None:
        self._limit = limit
        self._start_room = limit
        self._start = bytearray()
        self._rest = bytearray()
        self._skipped = 0

    def feed(self, data: bytes) -> None:
        """More of the stream."""
        if self._start_room:
            start = data[: self._start_room]
            self._start += start
            self._start_room -= len(start)
            data = data[len(start) :]
        if data:
            self._rest += data
            if len(self._rest) > 2 * self._limit:
                self._trim()

    def _trim(self) -> None:
        over = len(self._rest) - self._limit
        if over > 0:
            del self._rest[:over]
            self._skipped += over

    def take(self) -> tuple[bytes, int, bytes]:
        """(bytes of the stream's start, bytes left out after them, bytes after those); empty until more is fed."""
        self._trim()
        taken = bytes(self._start), self._skipped, bytes(self._rest)
        self._start.clear()
        self._rest.clear()
        self._skipped = 0
        return taken
