"""Processes that outlive their starter, known by pid files that can't name a stranger.

A pid file holds the pid and the process's start time (clock ticks since boot): a number that the kernel has given to
somebody else since is never signalled.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import wait_for


@dataclass(frozen=True, slots=True)
class Process:
    """A process, whatever happens to its number later."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """The process that has `pid` now; None when there is none, or only a zombie."""
        stat = _stat(pid)
        return None if stat is None or stat[0] in "ZX" else cls(pid, int(stat[19]))

    @property
    def alive(self) -> bool:
        """True while it runs. (kill -0 would say yes to zombies, and in containers nobody may reap those soon.)"""
        return Process.of(self.pid) == self

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing when it is gone."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the state on."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


def session_members(leader: int) -> list[Process]:
    """All processes of the session that `leader` opened."""
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            stat = _stat(int(entry.name))
            if stat is not None and int(stat[3]) == leader and (process := Process.of(int(entry.name))):
                members.append(process)
    return members


class PidFiles:
    """The pid files of one bed: `<folder>/<name>.pid`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def names(self) -> list[str]:
        """Everything that was started and not stopped."""
        return sorted(path.stem for path in self.folder.glob("*.pid"))

    def write(self, name: str, process: Process) -> None:
        """Note that `name` is `process`."""
        (self.folder / f"{name}.pid").write_text(f"{process.pid} {process.started}\n")

    def process(self, name: str) -> Process | None:
        """The running process called `name`, or None."""
        try:
            pid, started = (self.folder / f"{name}.pid").read_text().split()
        except (FileNotFoundError, ValueError):
            return None
        process = Process(int(pid), int(started))
        return process if process.alive else None

    def start(self, name: str, argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None) -> Process:
        """Start `argv` in a session of its own, output to `log`, not as our child: nobody has to reap it.

        Raises RuntimeError, with the log's end, when it ends before we have looked at it.
        """
        script = 'setsid "$@" </dev/null >>"$0" 2>&1 & echo $!'
        answer = subprocess.run(
            ["/bin/sh", "-c", script, str(log), *argv], stdout=subprocess.PIPE, text=True, check=True, env=env
        )
        process = Process.of(int(answer.stdout))
        if process is None:
            raise RuntimeError(f"{name} ended at once: {tail(log)}")
        self.write(name, process)
        return process

    def stop(self, names: Iterable[str], number: signal.Signals, deadline: float = 30.0) -> None:
        """Signal each of `names`, wait until its whole session is gone (SIGKILL at the deadline), drop its file."""
        found = {name: process for name in names if (process := self.process(name))}
        members = [member for process in found.values() for member in session_members(process.pid)]
        for process in found.values():
            process.signal(number)
        if number == signal.SIGKILL:
            for member in members:
                member.signal(number)
        everyone = [*found.values(), *members]
        try:
            wait_for(lambda: not any(process.alive for process in everyone), deadline, interval=0.01)
        except TimeoutError:
            for process in everyone:
                process.signal(signal.SIGKILL)
            wait_for(lambda: not any(process.alive for process in everyone), deadline, interval=0.01)
        for name in names:
            (self.folder / f"{name}.pid").unlink(missing_ok=True)


def tail(log: Path, lines: int = 15) -> str:
    """The end of a log, for error messages."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return f"{log}: no such file"
