"""Files and folders that others read: group-readable when asked, on disk before they are relied on."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def make_folder(path: Path, *, group_readable: bool) -> None:
    """Make a folder with its parents; the new ones are open to the group when asked, whatever the umask."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    if group_readable:
        for folder in missing:
            _add_mode(folder, 0o050)


def create(path: Path, *, group_readable: bool, flags: int = os.O_EXCL) -> int:
    """Open a file for writing, make it if need be; its descriptor."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o666)
    if group_readable:
        with contextlib.suppress(OSError):
            os.fchmod(fd, os.fstat(fd).st_mode | 0o040)
    return fd


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write all of `data` or raise OSError."""
    with memoryview(data) as view:
        written = 0
        while written < len(view):
            written += os.write(fd, view[written:])


def write_synced(path: Path, data: bytes, *, group_readable: bool) -> None:
    """Write a file by temporary name, fsync and rename. On OSError nothing is left behind."""
    temporary = path.with_name(f".{path.name}.new")
    fd = create(temporary, group_readable=group_readable, flags=os.O_TRUNC)
    try:
        write_all(fd, data)
        os.fsync(fd)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    finally:
        os.close(fd)
    temporary.replace(path)


def sync(path: Path) -> None:
    """fsync a file or folder by its path."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _add_mode(path: Path, mode: int) -> None:
    with contextlib.suppress(OSError):
        path.chmod(path.stat().st_mode | mode)
