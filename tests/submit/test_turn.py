"""Two commands at once: one waits or gives up and says for whom; readers wait for nobody."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from campaign.errors import NotNow
from campaign.lockholder import holder
from campaign.submit.ledger import Ledger
from campaign.submit.turn import TURN_FILE, turn
from tests.conftest import Cli
from tests.needs import needs
from tests.waiting import wait_for

HOLD = """
    import sys, time
    from pathlib import Path
    from campaign.submit.turn import turn
    with turn(Path(sys.argv[1]), "submit", note=print):
        print("held", flush=True)
        sys.stdin.read()
"""
LATE = """
    import fcntl, json, sys, threading
    from pathlib import Path
    path = Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a+")
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("held", flush=True)
    sign = lambda: (file.write(json.dumps({"host": "login7", "user": "u", "pid": 1, "command": "run"})), file.flush())
    threading.Timer(0.5, sign).start()
    sys.stdin.read()
"""
"""Holds the turn for half a second before it says who it is: the moment between the two system calls, made long."""
WRITE = """
    import sqlite3, sys
    db = sqlite3.connect(sys.argv[1], isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def other(code: str, path: Path, *before: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds something until it is left."""
    process = subprocess.Popen(
        [*before, sys.executable, "-c", textwrap.dedent(code), str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


def test_who_has_the_turn_is_named(tmp_path: Path) -> None:
    ledger = tmp_path / ".campaign" / "ledger.sqlite"
    said: list[str] = []
    with (
        other(HOLD, ledger) as process,
        pytest.raises(NotNow) as caught,
        turn(ledger, "x", note=said.append, wait_s=0.3),
    ):
        pass
    message = caught.value.problems[0].message
    assert f"`campaign submit` of {os.environ.get('USER') or 'root'} on {socket.gethostname()}" in message
    assert f"pid {process.pid}" in message
    assert said == [f"waiting for {message.partition(' is queueing')[0]}"]
    with turn(ledger, "submit", note=said.append, wait_s=0):
        assert json.loads(ledger.with_name(TURN_FILE).read_text())["pid"] == os.getpid()
    assert ledger.with_name(TURN_FILE).read_text() == ""


def test_it_waits_for_the_other_to_end(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    with other(HOLD, ledger) as process:
        assert process.stdin is not None

        def told(text: str) -> None:
            assert "waiting for `campaign submit`" in text
            process.stdin.close()  # type: ignore[union-attr]

        with turn(ledger, "cancel", note=told, wait_s=60):
            assert json.loads(ledger.with_name(TURN_FILE).read_text())["command"] == "cancel"


def test_a_holder_that_signs_late_is_named_too(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    said: list[str] = []
    with (
        other(LATE, ledger.with_name(TURN_FILE)),
        pytest.raises(NotNow, match="`campaign run` of u on login7"),
        turn(ledger, "submit", note=said.append, wait_s=0),
    ):
        pass
    with (
        other(LATE, ledger.with_name(TURN_FILE)),
        pytest.raises(NotNow),
        turn(ledger, "submit", note=said.append, wait_s=1),
    ):
        pass
    assert len(said) == 1
    assert "on login7" in said[0]


def test_a_killed_holder_leaves_no_lock(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    with other(HOLD, ledger) as process:
        os.kill(process.pid, signal.SIGKILL)
        wait_for(lambda: process.poll() is not None)
    with turn(ledger, "submit", note=lambda _: None, wait_s=0):
        pass


@needs("root")
def test_from_another_login_node(tmp_path: Path) -> None:
    """Another host name, as seen by a process in a UTS namespace of its own."""
    ledger = tmp_path / "ledger.sqlite"
    login = ["unshare", "-u", "sh", "-c", 'hostname login2; exec "$@"', "sh"]
    with other(HOLD, ledger, *login), pytest.raises(NotNow, match="on login2"), turn(ledger, "x", note=print, wait_s=0):
        pass


def test_who_writes_the_ledger_is_named(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    with Ledger.open(path):
        pass
    with other(WRITE, path) as process:
        with pytest.raises(NotNow) as caught:
            Ledger.open(path, wait_s=0.1)
        assert f"pid {process.pid} of " in caught.value.problems[0].message
        assert socket.gethostname() in caught.value.problems[0].message
    assert holder(path) is None


SHELL = """
    import duckdb, sys
    db = duckdb.connect(sys.argv[1])
    db.execute("CREATE TABLE IF NOT EXISTS mine (x INTEGER)")
    db.execute("BEGIN")
    db.execute("INSERT INTO mine VALUES (1)")
    print("held", flush=True)
    sys.stdin.read()
"""


def test_somebody_in_a_duckdb_shell_blocks_neither_plan_nor_submit_nor_status(tmp_path: Path, cli: Cli) -> None:
    """The store is open for writing in another process, in the middle of a transaction."""
    project = tmp_path / "p"
    cli("init", project, "--site", "local", code=0)
    (project / "studies" / "t.yaml").write_text(
        'schema: 1\nname: t\ncommand: ["true"]\nscaling: none\naxes: {nodes: [1], ranks_per_node: [1]}\nrepeats: 1\n'
        'gate: false\nwalltime: "00:01:00"\n'
    )
    with other(SHELL, project / "campaign.duckdb"):
        cli("plan", "local", "--study", "t", cwd=project, code=0)
        cli("submit", cwd=project, code=0)
        wait_for(lambda: "all done" in cli("status", cwd=project, code=0).stdout)
        cli("show", next((project / ".campaign" / "plans").glob("*.json")).read_text().split('"run_id":"')[1][:16],
            cwd=project, code=0)  # fmt: skip
