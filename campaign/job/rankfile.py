"""Reads a rank's record file while the rank writes it (format: `campaign.record`), and gives its space back."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import sys
from pathlib import Path
from typing import Any

from campaign.record import DROPPED_OFFSET, HEADER, JSON_HEAD, JSON_TAG, MAGIC, STEP, STEP_TAG

CHUNK_BYTES = 1 << 20
PUNCH_BYTES = 1 << 20
_PAGE = 4096
_FALLOC_KEEP_SIZE_PUNCH_HOLE = 0x03

StepRecord = tuple[int, int, int, int, int, float, float, float, float, float, float, float, float]
"""STEP's fields: tag, epoch, step, t_ns, samples, the seven parts, loss."""


Record = StepRecord | dict[str, Any]
"""A step as `STEP` unpacks it; everything else as a JSON object."""


class RankFile:
    """One rank's file. `read` returns only whole records; a record cut off by a kill stays unread."""

    def __init__(self, path: Path, rank: int) -> None:
        self.rank = rank
        self.corrupt = False
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._offset = HEADER.size
        self._punched = 0

    @classmethod
    def create(cls, path: Path, rank: int) -> RankFile:
        """Make the file with its header, so that the count of dropped bytes has its place before a disk fills."""
        with path.open("xb") as file:
            file.write(HEADER.pack(MAGIC, rank, 0, 0))
        return cls(path, rank)

    def read(self, limit: int = CHUNK_BYTES) -> list[Record]:
        """The records that have come since the last read, in their order, at most `limit` bytes of them.

        `limit` must be larger than the largest record (`campaign.record.BUFFER_BYTES`).
        """
        records: list[Record] = []
        if self.corrupt:
            return records
        data = os.pread(self._fd, limit, self._offset)
        position = 0
        while position < len(data):
            tag = data[position]
            if tag == STEP_TAG:
                if position + STEP.size > len(data):
                    break
                records.append(STEP.unpack_from(data, position))
                position += STEP.size
            elif tag == JSON_TAG:
                start = position + JSON_HEAD.size
                if start > len(data):
                    break
                end = start + JSON_HEAD.unpack_from(data, position)[1]
                if end > len(data):
                    break
                with contextlib.suppress(ValueError):
                    records.append(json.loads(data[start:end]))
                position = end
            else:
                self.corrupt = True
                break
        self._offset += position
        self._give_back()
        return records

    @property
    def bytes_dropped(self) -> int:
        """Bytes the rank could not write, and bytes that could not be read because the file is damaged."""
        counter = os.pread(self._fd, 8, DROPPED_OFFSET)
        dropped = int.from_bytes(counter, sys.byteorder)
        return dropped + (os.fstat(self._fd).st_size - self._offset if self.corrupt else 0)

    def close(self) -> None:
        """Close the file; it stays where it is."""
        os.close(self._fd)

    def _give_back(self) -> None:
        """Punch a hole over what has been read: node-local memory stays bounded however long the run."""
        end = self._offset // _PAGE * _PAGE
        start = max(self._punched, _PAGE)
        if end - start < PUNCH_BYTES:
            return
        if _punch(self._fd, start, end - start):
            self._punched = end
        else:
            # this file system can't: don't try again; the recorder's cap keeps the file bounded
            self._punched = 1 << 62


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return libc


def _punch(fd: int, offset: int, length: int) -> bool:
    return bool(_libc().fallocate(fd, _FALLOC_KEEP_SIZE_PUNCH_HOLE, offset, length) == 0)
