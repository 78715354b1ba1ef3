"""The sources that a site file names: `# [grade date source words; words grade date source ...]` behind an entry.

Grades: O official, M measured, R public repository, P public page, K data sheet (needs no date). Sources: the table in
docs/sites.md.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from campaign.yamlfile import Document

ROOT = Path(__file__).resolve().parents[2]
GRADED = ("partitions", "nodes", "gpus", "filesystems")

_COMMENT = re.compile(r"  # \[(?P<claims>[^\[\]]+)\]$")
_DATE = r"(?P<date>20\d\d(?:-(?:0[1-9]|1[0-2])(?:-(?:0[1-9]|[12]\d|3[01]))?)?|undated)"
_CLAIM = re.compile(rf"(?:^|\s)(?:(?P<grade>[OMRP]) {_DATE}|(?P<k>K)) (?P<source>[A-Za-z0-9-]+)(?=\s|$)")
_ELSEWHERE = re.compile(r"\[((?:[^\[\]]*\s)?(?:[OMRP] (?:20|undated)|K )[^\[\]]*)\]")
_TABLE_ROW = re.compile(r"^\| ([A-Za-z0-9-]+) \| \S", re.MULTILINE)


def known_sources() -> set[str]:
    """The names of the first column of the table `Sources` in docs/sites.md."""
    text = (ROOT / "docs" / "sites.md").read_text(encoding="utf-8")
    section = text.split("### Sources\n", 1)[1].split("\n#", 1)[0]
    return set(_TABLE_ROW.findall(section)) - {"name"}


def wrong_claims(comment: str, sources: Collection[str]) -> list[str]:
    """What is wrong with the text between the brackets; empty when nothing is."""
    wrong = []
    for number, claim in enumerate(part.strip() for part in comment.split(";")):
        found = list(_CLAIM.finditer(claim))
        if not found:
            wrong.append(f"no `grade date source` in `{claim}`")
        elif len(found) > 1:
            wrong.append(f"two sources in `{claim}`: separate them with `;`")
        elif number == 0 and found[0].start() > 0:
            wrong.append(f"`{claim}` doesn't begin with its grade")
        elif found[0]["source"] not in sources:
            wrong.append(f"unknown source {found[0]['source']} in `{claim}`")
    return wrong


def ungraded(document: Document, sources: Collection[str]) -> list[str]:
    """Entries of the graded sections whose line doesn't say where it is from: `section.name: what is wrong`."""
    lines = document.text.splitlines()
    wrong = []
    for section in GRADED:
        for name in document.data.get(section) or {}:
            match = _COMMENT.search(lines[document.line_of((section, name)) - 1])
            reasons = wrong_claims(match["claims"], sources) if match else ["no `# [grade date source]` at its end"]
            wrong += [f"{section}.{name}: {reason}" for reason in reasons]
    return wrong


def other_claims(document: Document) -> list[tuple[int, str]]:
    """(line, text between brackets) of all comments elsewhere that give a source."""
    graded = {document.line_of((section, name)) for section in GRADED for name in document.data.get(section) or {}}
    found = []
    for number, line in enumerate(document.text.splitlines(), 1):
        _, sign, comment = line.partition("#")
        if sign and number not in graded:
            found += [(number, text) for text in _ELSEWHERE.findall(comment)]
    return found
