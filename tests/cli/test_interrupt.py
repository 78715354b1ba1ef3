"""Ctrl-C, however early it comes, ends the command without a traceback."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import Cli, campaign_command

SIGINT_BIT = 1 << (signal.SIGINT - 1)
DELAYS_MS = (0, 1, 2, 4, 6, 8, 10, 15, 20, 25, 30, 35, 40, 50, 60, 80, 100, 120, 150, 180, 220, 260, 300, 400)


def catches(pid: int) -> bool | None:
    """Whether the process handles SIGINT itself; None when it has ended. Source: proc(5), SigCgt."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return None
    found = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
    if found is None or re.search(r"^State:\s*Z", status, re.MULTILINE):
        return None
    return bool(int(found[1], 16) & SIGINT_BIT)


def interrupted(argv: list[str], cwd: Path, delay_ms: int) -> tuple[int, str] | None:
    """(exit status, stderr) of a command that gets SIGINT `delay_ms` after its first line; None when that was missed.

    Python's own start, which no program has a say in, catches the signal; the first line of `campaign` stops that.
    """
    process = subprocess.Popen(argv, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    started = False
    while (caught := catches(process.pid)) is not None and not (started and not caught):
        started = started or caught
    if caught is None:
        process.communicate()
        return None
    end = time.monotonic() + delay_ms / 1000
    while time.monotonic() < end and process.poll() is None:
        pass
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    return process.returncode, stderr


@pytest.mark.parametrize("argv", [[campaign_command()], [sys.executable, "-m", "campaign"]], ids=["script", "module"])
def test_an_early_interrupt_leaves_no_traceback(tmp_path: Path, cli: Cli, argv: list[str]) -> None:
    cli("init", tmp_path / "p", code=0)
    command = [*argv, "plan", "local"]
    ends = [interrupted(command, tmp_path / "p", delay) for delay in DELAYS_MS]
    seen = [end for end in ends if end is not None]
    assert len(seen) > len(DELAYS_MS) / 2, "the command's first line wasn't seen"
    for status, stderr in seen:
        assert "Traceback" not in stderr
        assert "KeyboardInterrupt" not in stderr
        assert status in (-signal.SIGINT, 130, 0), stderr
    assert -signal.SIGINT in {status for status, _ in seen}, "none came before main()"


def test_an_ignored_interrupt_stays_ignored(tmp_path: Path) -> None:
    """`nohup`, or a background job of a shell without job control."""
    argv = ["sh", "-c", 'trap "" INT; exec "$0" "$@"', campaign_command(), "--version"]
    code = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"
    assert subprocess.run([sys.executable, "-c", code, *argv], cwd=tmp_path, check=False).returncode == 0
    ask = (
        "import signal, sys; sys.argv = ['/bin/campaign']; import campaign.cli; print(signal.getsignal(signal.SIGINT))"
    )
    shell = ["sh", "-c", 'trap "" INT; exec "$0" -c "$1"', sys.executable, ask]
    assert subprocess.run(shell, capture_output=True, text=True, check=True).stdout.strip() == "1"  # SIG_IGN


def test_a_program_that_imports_it_keeps_its_handler() -> None:
    ask = "import signal, campaign.cli; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    shown = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "True"


CALLBACK = """
import signal, sys, time, weakref
sys.argv = ["/bin/campaign", "sites"]
import campaign.cli

class Thing:
    pass

def busy(*args, **kwargs):
    thing = Thing()
    watch = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
    del thing  # the interrupt is raised in the callback, where no exception can leave
    time.sleep(30)

campaign.cli.cli.main = busy
campaign.cli.main()
"""


def test_an_interrupt_in_a_callback_is_not_lost(tmp_path: Path) -> None:
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", CALLBACK], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 130, done.stderr
    assert done.stderr == "interrupted; nothing is lost: repeat the command to go on\n"
    assert time.monotonic() - start < 25  # didn't sleep to its end
