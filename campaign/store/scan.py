"""Finding record folders on shared storage with few metadata operations.

Only attempts whose final record the store doesn't have yet are looked for. Their run folders share parent folders
(`runs/<first two digits>`), so one listing answers for many runs that have not begun.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from campaign.store.ledgercopy import Attempt
from campaign.store.recordfile import PARTIAL_SUFFIX, attempt_of


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    """A folder that holds a record, final or partial."""

    run_id: str
    attempt: int
    path: Path
    final: bool


@dataclass
class Scan:
    """What one look at the run folders found."""

    candidates: list[Candidate] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)
    """Folder to why it couldn't be listed."""


def final_folder(attempt: Attempt) -> str:
    """Where the final record of an attempt lies (contract section 6)."""
    return f"{attempt.run_root}/runs/{attempt.run_id[:2]}/{attempt.run_id}/a{attempt.attempt}"


def find_records(attempts: Iterable[Attempt], have: Collection[str]) -> Scan:
    """Record folders of runs with an attempt whose final folder is not in `have`, sorted by run and attempt.

    Folders of attempts that the ledger doesn't know (a job that started late) are found too. A partial folder beside
    its final one is left out.
    """
    scan = Scan()
    missing = sorted({(a.run_root, a.run_id) for a in attempts if final_folder(a) not in have})
    for (root, prefix), runs in groupby(missing, key=lambda run: (run[0], run[1][:2])):
        parent = f"{root}/runs/{prefix}"
        run_ids = [run_id for _, run_id in runs]
        if len(run_ids) > 1:
            there = set(_names(parent, scan))
            run_ids = [run_id for run_id in run_ids if run_id in there]
        for run_id in run_ids:
            scan.candidates += [c for c in _records(f"{parent}/{run_id}", run_id, scan) if str(c.path) not in have]
    scan.candidates.sort()
    return scan


def _records(run_dir: str, run_id: str, scan: Scan) -> list[Candidate]:
    by_attempt: dict[int, bool] = {}
    for name in _names(run_dir, scan):
        named = attempt_of(name)
        if named is not None:
            attempt, final = named
            by_attempt[attempt] = by_attempt.get(attempt, False) or final
    return [
        Candidate(run_id, attempt, Path(run_dir, f"a{attempt}{'' if final else PARTIAL_SUFFIX}"), final)
        for attempt, final in by_attempt.items()
    ]


def _names(folder: str, scan: Scan) -> list[str]:
    """Names in a folder; none when it isn't there (yet)."""
    try:
        return os.listdir(folder)  # noqa: PTH208  names are all it takes, for thousands of folders
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        scan.unreadable[folder] = error.strerror or str(error)
        return []
