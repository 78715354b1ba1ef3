"""Opening the store: locks with a deadline, who holds them, and what to say when the file can't be opened.

DuckDB lets one process write and shuts all others out meanwhile, readers too. So the store is opened late, held for one
transaction, and a busy store is retried until a deadline; then the holder is named.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaign.errors import BadInput, CampaignError, NotNow, Problem

if TYPE_CHECKING:
    import duckdb

DUCKDB_MAGIC = b"DUCK"
MAGIC_OFFSET = 8
MEMORY_LIMIT = "4GB"
MAX_THREADS = 8
"""A login node is shared: the store never takes all of it."""

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5
_FLOCK = struct.Struct("hhqqi4x")
"""struct flock of 64-bit Linux: type, whence, start, length, PID."""
_HOLDER = re.compile(r"Conflicting lock is held in (?:(?P<program>.+?) \(PID (?P<pid>\d+)\)|PID (?P<bare>\d+))")


@contextlib.contextmanager
def open_store(
    path: Path, *, write: bool, wait_s: float = 10.0, note: Callable[[str], None] = lambda _: None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open the store for one piece of work and close it again.

    `write=True` makes a missing store and migrates an older one; `write=False` needs the file and allows other readers.
    `note` is called once, with a line of text, when the store is busy and has to be waited for.

    Raises `NotNow` when another process holds the file for longer than `wait_s` seconds (the message names its PID and
    host), `BadInput` when the file is missing, not a store, written by a newer version, or on a file system whose
    locks don't work, `CampaignError` when DuckDB fails while the store is open.
    """
    path = path.absolute()  # DuckDB takes some relative names for something else: `:memory:`, `md:name`
    if "?" in str(path):
        raise BadInput(Problem("DuckDB can't keep a file below a path with `?`", str(path),
                               hint="name another file with --store"))  # fmt: skip
    if not write:
        _require_store(path)
    with explained(path):
        connection = _open_for_writing(path, wait_s, note) if write else _open_for_reading(path, wait_s, note)
        try:
            yield connection
        finally:
            if write:
                _note_path(path).unlink(missing_ok=True)  # while the lock is still ours
            connection.close()


def _open_for_writing(path: Path, wait_s: float, note: Callable[[str], None]) -> duckdb.DuckDBPyConnection:
    from campaign.store.migrate import migrate

    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not store_exists(path) and _unheld(path):
        path.unlink()  # a process was killed while it made the file; DuckDB refuses empty ones
    _require_ours(path)
    connection = _connect(path, True, wait_s, note)
    try:
        _leave_note(path)
        migrate(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _open_for_reading(path: Path, wait_s: float, note: Callable[[str], None]) -> duckdb.DuckDBPyConnection:
    """Open read-only; a store of an older version is migrated first, unless we may not write it."""
    from campaign.store.migrate import is_current

    connection = _connect(path, False, wait_s, note)
    try:
        if is_current(connection, path) or not os.access(path, os.W_OK):
            return connection
    except BaseException:
        connection.close()
        raise
    connection.close()
    _open_for_writing(path, wait_s, note).close()
    _note_path(path).unlink(missing_ok=True)
    return _connect(path, False, wait_s, note)


def store_exists(path: Path) -> bool:
    """False also for an empty file, which a process leaves that is killed while it makes the store."""
    return path.exists() and path.stat().st_size > 0


def _require_store(path: Path) -> None:
    if not store_exists(path):
        raise BadInput(Problem("there is no store yet", str(path), hint="campaign collect"))


def _connect(path: Path, write: bool, wait_s: float, note: Callable[[str], None]) -> duckdb.DuckDBPyConnection:
    import duckdb

    deadline = time.monotonic() + wait_s
    pause_s = _FIRST_PAUSE_S
    noted = False
    while True:
        try:
            connection = duckdb.connect(str(path), read_only=not write, config=_config(write))
            break
        except duckdb.IOException as error:
            holder = _HOLDER.search(str(error))
            if holder is None:
                raise
            pid = int(holder["pid"] or holder["bare"])
            if pid == 0 and (why := _locks_fail(path.parent)):
                raise BadInput(_no_locks(path, why)) from error
            who = _who(path, pid, holder["program"])
            if time.monotonic() >= deadline:
                raise NotNow(_busy(path, who, wait_s)) from error
        if not noted:
            note(f"{path} is in use by {who}; waiting up to {wait_s:g} s")
            noted = True
        time.sleep(max(0.0, min(pause_s, deadline - time.monotonic())))
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    connection.execute("SET enable_progress_bar = false")
    return connection


def _config(write: bool) -> dict[str, str | bool | int | float | list[str]]:
    return {
        "threads": max(1, min(MAX_THREADS, len(os.sched_getaffinity(0)))),
        "memory_limit": MEMORY_LIMIT,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "preserve_insertion_order": not write,
    }


def replace_store(new: Path, path: Path, wait_s: float = 10.0) -> None:
    """Put a store that was built beside it in the place of `path`; what is open on the old one keeps the old one.

    Raises NotNow when another process has the old one open for longer than `wait_s`.
    """
    with contextlib.ExitStack() as stack:
        if path.exists():
            old = stack.enter_context(path.open("r+b"))
            _lock(old.fileno(), path, wait_s)
        # the log of the old store must not be replayed onto the new one
        path.with_name(f"{path.name}.wal").unlink(missing_ok=True)
        new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _lock(fd: int, path: Path, wait_s: float) -> None:
    """Take the lock that DuckDB takes: on the whole file, of the process."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except (BlockingIOError, PermissionError) as error:
            if time.monotonic() >= deadline:
                answer = fcntl.fcntl(fd, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
                raise NotNow(_busy(path, _who(path, _FLOCK.unpack(answer)[4], None), wait_s)) from error
        except OSError as error:
            raise _io_error(path, f'Could not set lock on file "{path}": {error.strerror}') from error
        time.sleep(_LONGEST_PAUSE_S / 5)


def check_replaceable(path: Path, wait_s: float, note: Callable[[str], None]) -> None:
    """Raise unless `path` may be replaced: nothing is there, or a store of ours of any version, damaged or not."""
    import duckdb

    from campaign.store.migrate import version_of

    if looks_like_duckdb(path) is None:
        return
    _require_ours(path)
    with contextlib.suppress(duckdb.Error), contextlib.closing(_connect(path, False, wait_s, note)) as connection:
        version_of(connection, path)


def remove_leftovers(path: Path, marker: str) -> None:
    """Remove files `.<name>.<marker>.<PID>` that a killed process has left beside the store; a living one's stay."""
    for file in path.parent.glob(f".{path.name}.{marker}.*"):
        if file.suffix[1:].isdigit() and _unheld(file):
            remove_store(file)


def remove_store(path: Path) -> None:
    """Remove a store and what DuckDB keeps beside it."""
    for file in (path, path.with_name(f"{path.name}.wal"), _note_path(path)):
        file.unlink(missing_ok=True)


def _unheld(path: Path) -> bool:
    """True when no process has the file open in DuckDB. Only for files that this process hasn't open either."""
    try:
        with path.open("r+b") as opened:
            fcntl.lockf(opened.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except OSError:
        return False


# -- what to say ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """DuckDB's errors about the store's file as ours; errors of a query pass through as they are."""
    import duckdb

    try:
        yield
    except duckdb.IOException as error:
        raise _io_error(path, str(error)) from error
    except duckdb.OutOfMemoryException as error:
        raise CampaignError(
            Problem(f"DuckDB ran out of memory: {_first_line(error)}", str(path),
                    hint=f"the store may use {MEMORY_LIMIT}; ask for fewer rows or columns at a time")
        ) from error  # fmt: skip
    except duckdb.SerializationException as error:
        raise _io_error(path, str(error)) from error
    except duckdb.Error as error:
        if not isinstance(error, (duckdb.FatalException, duckdb.InternalException)) and "Corrupt" not in str(error):
            raise
        raise CampaignError(_damaged(path, _first_line(error))) from error


_IO_ERRORS: tuple[tuple[tuple[str, ...], type[CampaignError], str, str], ...] = (
    (
        ("not a valid DuckDB database",),
        BadInput,
        "this is not a DuckDB file",
        "move it away, or name another file with --store; then campaign collect",
    ),
    (
        ("version number", "Serialization Error"),
        BadInput,
        "the store was written by another version of DuckDB",
        "pip install -U duckdb, or make the store anew: campaign collect --rebuild",
    ),
    (
        ("No space left", "Disk quota exceeded"),
        CampaignError,
        "no space for the store",
        "free space or name another place with --store; what was committed before is kept",
    ),
    (("Corrupt",), CampaignError, "the store is damaged", "campaign collect --rebuild"),
    (
        ("Permission denied", "Read-only file system"),
        BadInput,
        "the store can't be opened",
        "name a file that you may write with --store, or read with --no-collect",
    ),
)
"""What DuckDB says of a file, the error that it is, what that means, what to do."""


def _io_error(path: Path, message: str) -> CampaignError:
    text = message.removeprefix("IO Error: ")
    if "Could not set lock on file" in text:
        reason = text.partition(f'"{path}": ')[2] or text
        return BadInput(_no_locks(path, reason.partition(". See also")[0]))
    for signs, kind, meaning, hint in _IO_ERRORS:
        if any(sign in text for sign in signs):
            return kind(Problem(f"{meaning}: {text.splitlines()[0]}", str(path), hint=hint))
    return CampaignError(Problem(f"the store can't be read or written: {text}", str(path)))


def _damaged(path: Path, text: str) -> Problem:
    return Problem(f"the store is damaged: {text}", str(path), hint="campaign collect --rebuild")


def _no_locks(path: Path, reason: str) -> Problem:
    return Problem(
        f"file locks don't work on this file system ({reason})",
        str(path),
        hint="put the store on a local disk: --store /tmp/campaign.duckdb, or set CAMPAIGN_STORE",
    )


def _locks_fail(folder: Path) -> str | None:
    """Why no file in this folder can be locked; None when a fresh one can. PID 0 as a holder may mean either."""
    with contextlib.suppress(OSError), tempfile.NamedTemporaryFile(dir=folder, prefix=".locks.") as file:
        try:
            fcntl.lockf(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return error.strerror
    return None


def _not_ours(path: Path, what: str) -> Problem:
    return Problem(what, str(path), hint="move it away, or name another file with --store; then campaign collect")


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0]


def _require_ours(path: Path) -> None:
    """Refuse to write into a file that isn't a DuckDB file."""
    if looks_like_duckdb(path) is False:
        raise BadInput(_not_ours(path, "this is not a DuckDB file; campaign doesn't write into it"))


def looks_like_duckdb(path: Path) -> bool | None:
    """Whether the file begins like a DuckDB database; None when there is no file."""
    try:
        with path.open("rb") as file:
            return file.read(MAGIC_OFFSET + len(DUCKDB_MAGIC))[MAGIC_OFFSET:] == DUCKDB_MAGIC
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(Problem(f"the store can't be opened: {error.strerror}", str(path),
                               hint="name another file with --store")) from error  # fmt: skip


# -- who holds it ----------------------------------------------------------------------------------------------------


def _note_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.holder")


def _leave_note(path: Path) -> None:
    """Say beside the store who writes it: DuckDB's own message knows the PID but not the host."""
    note = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "command": " ".join(["campaign", *sys.argv[1:2]]),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    with contextlib.suppress(OSError):
        _note_path(path).write_text(json.dumps(note), encoding="utf-8")


def _who(path: Path, pid: int, program: str | None) -> str:
    """The holder in words: PID, host and program, as far as they can be known."""
    note = _read_note(path)
    if pid and note.get("pid") == pid:
        return f"PID {pid} on {note.get('host')} (`{note.get('command')}` since {note.get('since')})"
    if program is not None:
        return f"PID {pid} on {socket.gethostname()} ({program})"
    # DuckDB names the program of every process that it can see
    return f"a process on another host (PID {pid} there)" if pid else "a process on another host"


def _read_note(path: Path) -> dict[str, Any]:
    try:
        note = json.loads(_note_path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def _busy(path: Path, who: str, wait_s: float) -> Problem:
    return Problem(
        f"the store is in use by {who}; waited {wait_s:g} s",
        str(path),
        hint="close that program (a notebook, the duckdb shell) or repeat later; submit and status need no store",
    )
