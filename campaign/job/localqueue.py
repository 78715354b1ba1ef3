"""The local site's scheduler for one tag: `python -P -m campaign.job.localqueue SUBMIT_DIR [--slots N]`.

It goes through the array indices of `specs.jsonl` in order and starts a head for each when a slot is free. Slots are
locked files in `<run_root>/slots/`, shared by all queues of that run root; a lock is held by the head too and vanishes
with the last of both. A file `cancel.<index>` in the submit folder makes the queue pass over that element. On SIGTERM
the queue passes the signal on to its running heads, waits for them, and ends.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from campaign.job.spec import SPECS_FILE, RunSpec
from campaign.job.wakeup import Wakeup

QUEUE_FILE = "queue.json"
"""{"slots": N}, when --slots isn't given."""
LOOK_S = 0.2


@dataclass(slots=True)
class Running:
    """A head and the slot it sits in."""

    index: int
    process: subprocess.Popen[bytes]
    slot: int
    """Descriptor of the locked file."""


class LocalQueue:
    """The elements of one submit folder, in order."""

    def __init__(self, submit_dir: Path, slots: int) -> None:
        with (submit_dir / SPECS_FILE).open(encoding="utf-8") as lines:
            specs = [RunSpec.from_line(line) for line in lines if line.strip()]
        self._submit_dir = submit_dir
        self._tag = specs[0].tag
        self._slot_dir = Path(specs[0].run_root) / "slots"
        self._slots = slots
        self._waiting = sorted({spec.array_index for spec in specs})
        self._running: list[Running] = []
        self._failed = False
        self._wakeup = Wakeup((signal.SIGTERM, signal.SIGINT, signal.SIGCHLD))

    def run(self) -> int:
        """Until all elements have ended; 1 when any did not exit with 0."""
        selector = selectors.DefaultSelector()
        selector.register(self._wakeup, selectors.EVENT_READ)
        while self._waiting or self._running:
            self._reap()
            self._start_next()
            selector.select(LOOK_S if self._waiting else 2.0)
            if any(number != signal.SIGCHLD for number in self._wakeup.take()):
                self._end()
        return 1 if self._failed else 0

    def _start_next(self) -> None:
        while self._waiting:
            index = self._waiting[0]
            if (self._submit_dir / f"cancel.{index}").exists():
                self._waiting.pop(0)
                self._log(index, "cancelled before it began")
                continue
            slot = self._take_slot()
            if slot is None:
                return
            self._waiting.pop(0)
            with self._log_file(index).open("ab") as log:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "campaign.job.head", str(self._submit_dir), "--index", str(index)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    # the head keeps the slot when this queue is killed
                    pass_fds=(slot,),
                )
            self._running.append(Running(index, process, slot))

    def _take_slot(self) -> int | None:
        """A descriptor that holds a slot's lock; None when all are taken."""
        self._slot_dir.mkdir(parents=True, exist_ok=True)
        for number in range(self._slots):
            fd = os.open(self._slot_dir / str(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
            else:
                return fd
        return None

    def _reap(self) -> None:
        for running in [running for running in self._running if running.process.poll() is not None]:
            self._failed |= running.process.returncode != 0
            os.close(running.slot)
            self._running.remove(running)

    def _end(self) -> None:
        for index in self._waiting:
            self._log(index, "cancelled before it began: the queue was told to end")
            self._failed = True
        self._waiting.clear()
        for running in self._running:
            with contextlib.suppress(ProcessLookupError):
                running.process.send_signal(signal.SIGTERM)

    def _log_file(self, index: int) -> Path:
        return self._submit_dir / f"{self._tag}_{index}.log"

    def _log(self, index: int, message: str) -> None:
        with self._log_file(index).open("a", encoding="utf-8") as log:
            log.write(message + "\n")


def queue_slots(submit_dir: Path) -> int:
    """How many elements run at a time, from `queue.json`; 1 without it."""
    try:
        return max(1, int(json.loads((submit_dir / QUEUE_FILE).read_text(encoding="utf-8"))["slots"]))
    except FileNotFoundError:
        return 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the queue in a session of its own, so that Ctrl-C in a terminal doesn't reach it."""
    parser = argparse.ArgumentParser(prog="python -P -m campaign.job.localqueue", description="Run a local job array.")
    parser.add_argument("submit_dir", type=Path, metavar="SUBMIT_DIR", help="folder with specs.jsonl")
    parser.add_argument("--slots", type=int, help=f"elements that run at a time (default: from {QUEUE_FILE}, else 1)")
    arguments = parser.parse_args(argv)
    with contextlib.suppress(PermissionError):
        os.setsid()  # fails for the leader of a group: then the caller has seen to it
    try:
        slots = arguments.slots or queue_slots(arguments.submit_dir)
        queue = LocalQueue(arguments.submit_dir, slots)
    except (OSError, ValueError, TypeError, KeyError, IndexError) as error:
        print(f"{arguments.submit_dir}: the queue can't be read: {error!r}", file=sys.stderr)
        return 2
    return queue.run()


if __name__ == "__main__":
    sys.exit(main())
