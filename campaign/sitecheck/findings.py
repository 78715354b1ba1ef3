"""What a comparison found: one `Finding` per line of the site file that was held against a fact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from campaign.errors import Problem
from campaign.site import Site
from campaign.yamlfile import KeyPath

Verdict = Literal["right", "wrong", "missing", "unknown", "note"]
VERDICTS: tuple[Verdict, ...] = ("wrong", "missing", "unknown", "note", "right")
"""wrong: the file and the machine differ. missing: null in the file, and the machine says it. unknown: nobody could
say it here. note: true, and worth knowing. The order is that of importance."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a site file beside what was found."""

    verdict: Verdict
    key: str
    value: Any
    """What the file says, as it stands there."""
    found: Any
    """What the machine says; None: nothing."""
    source: str
    """Where that comes from: a command, or a place on this host."""
    message: str
    file: str | None = None
    line: int | None = None
    write: str | None = None
    """The line to type into the file."""

    def to_json(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        return asdict(self)

    def problem(self) -> Problem:
        """The finding as an error or a warning."""
        allowed = None if self.found is None else f"{self.found} ({self.source})"
        hint = f"write  {self.write}" if self.write else None
        return Problem(self.message, self.file, self.line, key=self.key, value=self.value, allowed=allowed, hint=hint)


class Findings:
    """Collects findings about one site file."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.all: list[Finding] = []

    def add(self, verdict: Verdict, path: KeyPath, message: str, *, source: str, found: Any = None,
            write: str | None = None) -> None:  # fmt: skip
        """Note a verdict on the key at `path`."""
        # a fact that no key holds stands for itself
        where = self.site.problem(path, message) if path else Problem(message, self.site.source.place(())[0])
        value = None if self._is_mapping(path) else where.value
        finding = Finding(verdict, where.key or "", value, found, source, message, where.file, where.line, write)
        if finding not in self.all:
            self.all.append(finding)

    def _is_mapping(self, path: KeyPath) -> bool:
        """Whole sections are named, not repeated."""
        data: Any = self.site.source.data
        for part in path:
            data = data.get(part) if isinstance(data, dict) else None
        return isinstance(data, dict)

    def compare(self, path: KeyPath, said: Any, found: Any, what: str, *, source: str, text: str | None = None) -> None:
        """Hold what the file says (None: nothing) against what was found (None: not known).

        `text`: how the found value stands in YAML; default: its own text.
        """
        key = str(path[-1])
        text = str(found) if text is None else text
        shown = text.strip('"')
        if found is None:
            self.add("unknown", path, f"{what}: not said", source=source)
        elif said is None:
            self.add("missing", path, f"{what} is {shown}", source=source, found=shown, write=f"{key}: {text}")
        elif said == found:
            self.add("right", path, f"{what} is {shown}", source=source, found=shown)
        else:
            message = f"{what} is {shown}, the file says {_plain(said)}"
            self.add("wrong", path, message, source=source, found=shown, write=f"{key}: {text}")

    def unknown(self, path: KeyPath, message: str, *, source: str) -> None:
        """Nobody could say it here."""
        self.add("unknown", path, message, source=source)


def _plain(value: Any) -> str:
    """A value as people write it: no `.0`, no `True`."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)


def count(findings: Iterable[Finding]) -> dict[str, int]:
    """How many findings of each verdict."""
    counted = Counter(finding.verdict for finding in findings)
    return {verdict: counted[verdict] for verdict in VERDICTS}
