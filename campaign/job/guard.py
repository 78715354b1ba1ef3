"""What ends a node's ranks when its agent is killed and can't: a small process that waits for the agent's death.

It is forked from the agent before that has any socket, so it costs no import. A pipe ties it to the agent: when the
pipe ends without a goodbye, it kills the ranks with all their children and removes the node-local folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal

from campaign.job.processes import kill_marked, signal_group

_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class Guard:
    """The agent's side."""

    def __init__(self) -> None:
        reader, self._pipe = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._pipe)
                _watch(reader)
            finally:
                os._exit(0)
        os.close(reader)

    def folder(self, path: str) -> None:
        """From now on this folder is to be removed when the agent dies."""
        self._tell(f"F{path}")

    def started(self, group: int) -> None:
        """This process group is to be killed when the agent dies."""
        self._tell(f"+{group}")

    def ended(self, group: int) -> None:
        """This process group has ended by itself."""
        self._tell(f"-{group}")

    def dismiss(self) -> None:
        """All has been cleaned up; the guard may go."""
        self._tell("Q")
        os.close(self._pipe)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def _tell(self, line: str) -> None:
        # a guard that was killed itself is a pity, not a reason to end the run
        with contextlib.suppress(OSError):
            os.write(self._pipe, line.encode() + b"\n")


def _watch(pipe: int) -> None:
    """The guard's whole life."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    groups: set[int] = set()
    folder = ""
    with os.fdopen(pipe, encoding="utf-8") as lines:
        for line in lines:
            word, rest = line[0], line[1:].rstrip("\n")
            if word == "F":
                folder = rest
            elif word == "+":
                groups.add(int(rest))
            elif word == "-":
                groups.discard(int(rest))
            else:
                return
    for group in groups:
        signal_group(group, signal.SIGKILL)
    if folder:
        kill_marked(folder)
        shutil.rmtree(folder, ignore_errors=True)
