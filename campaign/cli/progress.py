"""How far a long calculation has come, on stderr: a line that is rewritten on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from campaign.cli.common import Context

FIRST_S = 1.0
"""On a terminal nothing flickers by for what takes less."""
AGAIN_S = 0.2
LINE_S = 10.0
"""Between lines in a log."""
CLEAR = "\r\x1b[K"


class Progress:
    """Called as often as one likes: progress("planning s on local", 120_000, 200_000, "runs"). Silent with -q."""

    def __init__(self, context: Context, line_s: float = LINE_S) -> None:
        self._quiet = context.quiet
        self._terminal = sys.stderr.isatty()
        self._line_s = line_s
        self._due = time.monotonic() + (FIRST_S if self._terminal else line_s)
        self._shown = False

    def __call__(self, what: str, done: int, total: int, noun: str) -> None:
        if self._quiet or (now := time.monotonic()) < self._due:
            return
        text = f"{what}: {done:,} of {total:,} {noun}"
        if self._terminal:
            click.echo(f"{CLEAR}{text}", nl=False, err=True)
        else:
            click.echo(text, err=True)
        self._shown = self._terminal
        self._due = now + (AGAIN_S if self._terminal else self._line_s)

    def end(self) -> None:
        """Take the rewritten line away."""
        if self._shown:
            click.echo(CLEAR, nl=False, err=True)
        self._shown = False
