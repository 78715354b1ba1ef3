"""What can go wrong, as one exception tree with the contract's exit codes.

    CampaignError            exit 1: a run or part failed
    ├── BadInput             exit 2: wrong usage or bad input; carries one or more `Problem`s
    │   └── OutsideProject   exit 2: a command that needs a project folder ran outside one
    └── NotNow               exit 3: store locked, controller or link away, submit limit; safe to repeat

`Problem` is the JSON form of one error or warning: file, line, key, value, allowed, hint (contract section 1).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_NOT_NOW = 3
EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, said so that the user can mend it without reading our code."""

    message: str
    file: str | None = None
    line: int | None = None
    key: str | None = None
    value: Any = None
    allowed: str | None = None
    hint: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The object that `--json` prints in `errors` and `warnings`."""
        # not asdict, which copies deeply: a plan may hold one problem for each of 100,000 runs
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}

    def __str__(self) -> str:
        where = ":".join(str(part) for part in (self.file, self.line) if part is not None)
        lines = [f"{where}: {self.message}" if where else self.message]
        if self.key is not None:
            given = "" if self.value is None else f" = {_short(self.value)}"
            lines.append(f"  key:     {self.key}{given}")
        if self.allowed is not None:
            lines.append(f"  allowed: {self.allowed}")
        if self.hint is not None:
            lines.append(f"  try:     {self.hint}")
        return "\n".join(lines)


def _short(value: Any, limit: int = 120) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


class CampaignError(Exception):
    """Base of everything that campaign raises on purpose. Exit code 1."""

    exit_code = EXIT_FAILED

    def __init__(self, problems: Problem | str | Iterable[Problem], *, hint: str | None = None) -> None:
        if isinstance(problems, str):
            problems = Problem(problems, hint=hint)
        self.problems: list[Problem] = [problems] if isinstance(problems, Problem) else list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class BadInput(CampaignError):
    """Wrong usage or bad input. Exit code 2; nothing has been changed."""

    exit_code = EXIT_BAD_INPUT


class OutsideProject(BadInput):
    """The command needs a project folder and there is none above the working directory."""


class NotNow(CampaignError):
    """Something is busy or away; the same command may be repeated safely. Exit code 3."""

    exit_code = EXIT_NOT_NOW
