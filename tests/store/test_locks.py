"""The store while other processes have it: real second processes, real locks, and file systems without them."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

from campaign.errors import BadInput, CampaignError, NotNow
from campaign.store.collect import collect
from campaign.store.db import open_store
from tests.store.world import World

PATIENCE_S = 60


@contextmanager
def holder(store: Path, *, write: bool, ours: bool = False) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the store open until its stdin is closed; `ours`: through `open_store`."""
    code = (
        f"from campaign.store.db import open_store\nfrom pathlib import Path\nimport sys\n"
        f"with open_store(Path({str(store)!r}), write={write}):\n    print('open', flush=True)\n    sys.stdin.read()\n"
        if ours
        else f"import duckdb, sys\nc = duckdb.connect({str(store)!r}, read_only={not write})\n"
        "print('open', flush=True)\nsys.stdin.read()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "open\n"
        yield process
    finally:
        process.stdin.close()
        process.wait(PATIENCE_S)
        process.stdout.close()


@pytest.mark.parametrize(("theirs", "mine"), [(True, True), (True, False), (False, True)])
def test_a_store_that_another_process_holds_is_not_now_and_names_it(world: World, theirs: bool, mine: bool) -> None:
    with holder(world.store, write=theirs) as other:
        begun = time.monotonic()
        with pytest.raises(NotNow) as caught, open_store(world.store, write=mine, wait_s=0.3):
            pass
        assert time.monotonic() - begun >= 0.3, "it was tried until the deadline"
    [problem] = caught.value.problems
    assert caught.value.exit_code == 3
    assert f"PID {other.pid} on {socket.gethostname()}" in problem.message
    assert problem.file == str(world.store)
    assert problem.hint


def test_readers_do_not_shut_each_other_out(world: World) -> None:
    with holder(world.store, write=False), open_store(world.store, write=False, wait_s=0) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchall() == [(0,)]


def test_a_writer_of_ours_says_its_command_and_since_when(world: World) -> None:
    """DuckDB's message has no host: on a file system of several hosts the PID alone would mislead."""
    with (
        holder(world.store, write=True, ours=True) as other,
        pytest.raises(NotNow, match=rf"PID {other.pid} on {socket.gethostname()} \(`campaign.*` since \d"),
        open_store(world.store, write=True, wait_s=0),
    ):
        pass
    assert [path.name for path in world.folder.iterdir() if "holder" in path.name] == []


def test_a_store_that_becomes_free_is_waited_for(world: World) -> None:
    notes: list[str] = []
    with holder(world.store, write=True) as other:

        def note(line: str) -> None:
            notes.append(line)
            assert other.stdin is not None
            other.stdin.close()

        with open_store(world.store, write=True, wait_s=PATIENCE_S, note=note) as connection:
            assert connection.execute("SELECT count(*) FROM runs").fetchall() == [(0,)]
    assert len(notes) == 1
    assert f"PID {other.pid}" in notes[0]


def test_collect_beside_a_reader_with_nothing_new_needs_no_lock(world: World) -> None:
    world.measured("r")
    collect(world, world.store)
    with holder(world.store, write=False):
        assert collect(world, world.store, wait_s=0).records == 0
        world.measured("new")
        with pytest.raises(NotNow):
            collect(world, world.store, wait_s=0)
    assert collect(world, world.store).final == 1


def test_two_collects_at_once_take_each_record_once(world: World) -> None:
    for index in range(30):
        world.measured(f"r{index}")
    code = (
        "import sys\nfrom pathlib import Path\nfrom campaign.store.collect import collect\n"
        "from tests.store.world import Sources\n"
        f"w = Sources(Path({str(world.ledger_path)!r}))\n"
        f"sys.stdin.readline()\nprint(collect(w, Path({str(world.store)!r}), wait_s=60).records)\n"
    )
    both = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                         cwd=Path(__file__).parents[2])
        for _ in range(2)
    ]  # fmt: skip
    for process in both:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    counts = [int(process.communicate(timeout=PATIENCE_S)[0]) for process in both]
    assert sum(counts) == 30
    with open_store(world.store, write=False) as connection:
        assert connection.execute("SELECT count(*), count(DISTINCT run_id) FROM epochs").fetchall() == [(90, 30)]


def test_rebuild_waits_for_who_has_the_old_store(world: World) -> None:
    world.measured("r")
    collect(world, world.store)
    before = world.store.stat().st_ino
    with holder(world.store, write=True), pytest.raises(NotNow):
        collect(world, world.store, rebuild=True, wait_s=0.2)
    with holder(world.store, write=False) as reader, pytest.raises(NotNow, match=f"PID {reader.pid}"):
        collect(world, world.store, rebuild=True, wait_s=0.2)
    assert world.store.stat().st_ino == before
    assert sorted(path.name for path in world.folder.iterdir() if path.name.startswith(".campaign.")) == []
    assert collect(world, world.store, rebuild=True).final == 1
    assert world.store.stat().st_ino != before


# -- file systems without locks --------------------------------------------------------------------------------------

# fcntl(fd, F_SETLK, ...) fails as it does there: a seccomp filter of the kernel, no changed library. F_GETLK (5) may
# fail too, or answer with a holder of PID 0.
NO_LOCKS = """
import ctypes, platform
class Filter(ctypes.Structure):
    _fields_ = [("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint)]
class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.POINTER(Filter))]
FCNTL, F_SETLK = {"x86_64": 72, "aarch64": 25}[platform.machine()], 6
rules = [(0x20, 0, 0, 0), (0x15, 0, 4, FCNTL), (0x20, 0, 0, 24), (0x15, 1, 0, F_SETLK), (0x15, 0, 1, ALSO),
         (0x06, 0, 0, 0x00050000 | ERRNO), (0x06, 0, 0, 0x7FFF0000)]
filters = (Filter * len(rules))(*[Filter(*rule) for rule in rules])
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, ctypes.byref(Program(len(rules), filters)), 0, 0) == 0, ctypes.get_errno()  # PR_SET_SECCOMP
"""


@pytest.mark.parametrize("getlk_fails", [True, False])
@pytest.mark.parametrize("error", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_working_locks_is_told_plainly(world: World, error: int, getlk_fails: bool) -> None:
    code = NO_LOCKS.replace("ERRNO", str(error)).replace("ALSO", "5" if getlk_fails else "6") + (
        "from pathlib import Path\nfrom campaign.errors import CampaignError\n"
        "from campaign.store.db import open_store\n"
        f"try:\n    with open_store(Path({str(world.store)!r}), write=True, wait_s=30):\n        print('opened')\n"
        "except CampaignError as error:\n    print(error.exit_code, error)\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert answer.stdout.startswith("2 "), answer.stdout + answer.stderr
    assert "locks don't work on this file system" in answer.stdout
    assert "--store" in answer.stdout


# -- files that are something else -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rebuild", [False, True])
def test_a_file_that_is_not_a_store_is_never_written(world: World, rebuild: bool) -> None:
    notes = world.folder / "notes.txt"
    notes.write_text("mine" * 100)
    with pytest.raises(BadInput, match="not a DuckDB file"):
        collect(world, notes, rebuild=rebuild)
    assert notes.read_text() == "mine" * 100


@pytest.mark.parametrize("rebuild", [False, True])
def test_somebody_elses_database_is_never_written(world: World, rebuild: bool) -> None:
    theirs = world.folder / "theirs.duckdb"
    with duckdb.connect(str(theirs)) as connection:
        connection.execute("CREATE TABLE customers AS SELECT 1 AS id")
    with pytest.raises(BadInput, match="not a store of campaign: it holds customers"):
        collect(world, theirs, rebuild=rebuild)
    with duckdb.connect(str(theirs), read_only=True) as connection:
        assert connection.execute("FROM customers").fetchall() == [(1,)]


def test_an_empty_file_left_by_a_killed_process_is_no_obstacle(world: World) -> None:
    world.store.write_bytes(b"")
    assert collect(world, world.store).records == 0
    with open_store(world.store, write=False) as connection:
        assert connection.execute("FROM runs").fetchall() == []


def test_a_damaged_store_says_rebuild_and_rebuild_works(world: World) -> None:
    world.measured("r")
    collect(world, world.store)
    data = bytearray(world.store.read_bytes())
    data[4096:12288] = os.urandom(8192)  # both database headers
    world.store.write_bytes(bytes(data))
    with pytest.raises(CampaignError, match="the store is damaged") as caught:
        collect(world, world.store)
    assert caught.value.problems[0].hint == "campaign collect --rebuild"
    assert collect(world, world.store, rebuild=True).final == 1


def test_a_missing_store_says_collect(world: World) -> None:
    world.store.unlink()
    with pytest.raises(BadInput, match="no store yet") as caught, open_store(world.store, write=False):
        pass
    assert caught.value.problems[0].hint == "campaign collect"
