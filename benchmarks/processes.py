"""Processes of a benchmark: the environment of a user, and none left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

Word = str | os.PathLike[str]


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """`base` as a user has it: pyc files are used and kept, no settings of `campaign`."""
    return {
        name: value
        for name, value in base.items()
        if name != "PYTHONDONTWRITEBYTECODE" and not name.startswith("CAMPAIGN_")
    }


def check(argv: Sequence[Word], *, env: Mapping[str, str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a process to its end. Raises RuntimeError with its stderr when it fails."""
    done = subprocess.run(argv, env=env, cwd=cwd, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(f"{[str(part) for part in argv]} exited with {done.returncode}:\n{done.stderr[-2000:]}")
    return done


@contextmanager
def tidy_when_told_to_end() -> Iterator[None]:
    """SIGTERM ends us as Ctrl-C does: through every `finally`."""

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def running(argv: Sequence[Word], *, env: Mapping[str, str], cwd: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own session, with its output in `log`; it and its children are killed at the end."""
    with (
        log.open("wb") as output,
        subprocess.Popen(
            argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        ) as process,
    ):
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
