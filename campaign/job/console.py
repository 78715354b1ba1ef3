"""`console.log`: rank 0's output, live while the run lasts, its first and last 512 KiB at the end."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

from campaign.job.files import create, write_all, write_synced
from campaign.job.output import CONSOLE_BYTES

LIVE_BYTES = 8 << 20
"""The live file is rewritten, shorter, when it has grown to this."""


class Console:
    """Writes the live file and knows what the final one holds. OSError goes to the caller; the content stays here."""

    def __init__(self, path: Path, *, group_readable: bool, limit: int = CONSOLE_BYTES) -> None:
        self._path = path
        self._group_readable = group_readable
        self._limit = limit
        self._start = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._left_out = 0
        self._file_size = 0

    def __bool__(self) -> bool:
        return bool(self._start)

    def add(self, start: bytes, skipped: int, rest: bytes) -> None:
        """More of the output, as `output.Pending.take` gives it."""
        self._start += start
        if skipped:
            # nothing before a gap belongs to the last bytes without gap
            self._left_out += skipped + self._tail_size
            self._tail.clear()
            self._tail_size = 0
        if rest:
            self._tail.append(rest)
            self._tail_size += len(rest)
        while self._tail and self._tail_size - len(self._tail[0]) >= self._limit:
            gone = self._tail.popleft()
            self._tail_size -= len(gone)
            self._left_out += len(gone)
        chunk = start + (_gap(skipped) if skipped else b"") + rest
        if self._file_size + len(chunk) > LIVE_BYTES:
            self.rewrite()
            return
        fd = create(self._path, group_readable=self._group_readable, flags=os.O_APPEND)
        try:
            write_all(fd, chunk)
        finally:
            os.close(fd)
        self._file_size += len(chunk)

    def rewrite(self) -> None:
        """Put the first and last bytes in the place of all that was written (a new file: followers open it again)."""
        content = self.content()
        write_synced(self._path, content, group_readable=self._group_readable)
        self._file_size = len(content)

    def content(self) -> bytes:
        """What the final file holds."""
        tail = b"".join(self._tail)
        cut = max(0, len(tail) - self._limit)
        left_out = self._left_out + cut
        return bytes(self._start) + (_gap(left_out) if left_out else b"") + tail[cut:]


def _gap(count: int) -> bytes:
    return f"\n[... {count} bytes left out ...]\n".encode()
