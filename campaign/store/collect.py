"""`collect`: bring the ledger's runs and jobs and the records of all runs into the store, or build it anew.

Records are found and checked while nobody is shut out of the store; it is opened for one batch at a time. Killed at any
moment it leaves a store that works, and the next call goes on.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from campaign.errors import BadInput, CampaignError, NotNow, Problem
from campaign.store import ledgercopy
from campaign.store.db import check_replaceable, open_store, remove_leftovers, remove_store, replace_store, store_exists
from campaign.store.ingest import Ingested, Known, forget_rejects, ingest, known_records
from campaign.store.ledgercopy import Attempt
from campaign.store.migrate import fact
from campaign.store.recordfile import RECORD_FILE, Found, attempt_of, partial_signature, read_final, read_partial
from campaign.store.scan import Candidate, Scan, find_records
from campaign.store.tablefile import BadRecord

BATCH_RECORDS = 500
BATCH_ROWS = 4_000_000
_REBUILD = "rebuild"
READERS = 4
"""Threads that check records: hashing and shared storage both wait most of the time."""
TOLD = 3
"""Records that a message names."""
READ_AHEAD = 16
"""Records that are in memory before they go into a batch."""


class Sources(Protocol):
    """Where runs and records are; a `campaign.project.Project` is one."""

    ledger_path: Path

    def run_roots(self) -> Mapping[str, Path]:
        """Run root of every site."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a collect has come."""

    done: int
    total: int
    rows: int

    def __str__(self) -> str:
        return f"{self.done} of {self.total} records, {self.rows:,} rows"


class Reject(NamedTuple):
    """A record that was set aside."""

    path: str
    reason: str


@dataclass
class CollectReport:
    """What one collect did."""

    store: Path
    rebuilt: bool = False
    final: int = 0
    """Final records taken."""
    partial: int = 0
    """Partial records taken: the head died, or the run goes on."""
    replaced: int = 0
    """Of both, those that replaced an older partial record."""
    rows: int = 0
    runs: int = 0
    """Runs in the ledger's copy."""
    ledger_changed: bool = False
    rejects: list[Reject] = field(default_factory=list)
    """Records that were set aside."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Folders that couldn't be listed, and why."""
    seconds: float = 0.0

    @property
    def records(self) -> int:
        """Records taken."""
        return self.final + self.partial

    def to_json(self) -> dict[str, Any]:
        """As `campaign collect --json` prints it (docs/schema/collect.json)."""
        return {
            "store": str(self.store),
            "rebuilt": self.rebuilt,
            "final": self.final,
            "partial": self.partial,
            "replaced": self.replaced,
            "rows": self.rows,
            "runs": self.runs,
            "ledger_changed": self.ledger_changed,
            "rejects": [reject._asdict() for reject in self.rejects],
            "unreadable": [{"path": path, "reason": reason} for path, reason in sorted(self.unreadable.items())],
            "seconds": round(self.seconds, 3),
        }


@dataclass
class _State:
    """What the store knew before."""

    ledger: str | None = None
    known: dict[tuple[str, int], Known] = field(default_factory=dict)
    rejects: frozenset[str] = frozenset()
    runs: int = 0


def collect(
    project: Sources,
    store: Path,
    *,
    selection: Collection[str] | None = None,
    rebuild: bool = False,
    force: bool = False,
    progress: Callable[[Progress], None] = lambda _: None,
    note: Callable[[str], None] = lambda _: None,
    wait_s: float = 10.0,
) -> CollectReport:
    """Bring the store up to date with ledger and records; with `rebuild`, make a new one and put it in its place.

    A rebuilt store that would lack records of the old one takes its place only with `force`: a run root that is not
    mounted, or was purged, must not cost the last copy of what was measured.

    `selection`: ids of the runs whose records are looked for; all when None. `progress` is called as records are
    taken, `note` with a line when another process has to be waited for. Records that can't be taken are set aside in
    the report and in the view `rejects`.

    Raises NotNow when the store or the ledger stays locked for `wait_s`, BadInput when the store isn't ours or newer.
    """
    started = time.monotonic()
    report = CollectReport(store)
    work = _Work(project, selection, progress, note, wait_s, force, report)
    if rebuild:
        _rebuild(work, store)
    else:
        _update(work, store, ledgercopy.attempts(project.ledger_path))
    report.seconds = time.monotonic() - started
    return report


@dataclass
class _Work:
    project: Sources
    selection: Collection[str] | None
    progress: Callable[[Progress], None]
    note: Callable[[str], None]
    wait_s: float
    force: bool
    report: CollectReport


def _update(work: _Work, store: Path, attempts: list[Attempt]) -> None:
    report = work.report
    state = _look(store, work)
    if work.selection is not None:
        wanted = frozenset(work.selection)
        attempts = [attempt for attempt in attempts if attempt.run_id in wanted]
    scan = find_records(attempts, {known.path for known in state.known.values() if known.final})
    report.unreadable = scan.unreadable
    report.runs = state.runs
    candidates = [c for c in scan.candidates if not _unchanged(c, state)]
    vanished = _vanished(state, scan) if work.selection is None else frozenset()
    report.ledger_changed = state.ledger != ledgercopy.fingerprint(work.project.ledger_path)
    if not candidates and not vanished and not report.ledger_changed:
        return
    total = len(candidates)
    done = 0
    batches = _batches(candidates)
    batch: _Batch | None = next(batches, _Batch())
    first = True
    while batch is not None:
        with open_store(store, write=True, wait_s=work.wait_s, note=work.note) as connection:
            if first:
                ledgercopy.refresh_copy(connection, work.project.ledger_path)
                if vanished:
                    forget_rejects(connection, vanished)
                report.runs = connection.execute("SELECT count(*) FROM data.runs").fetchall()[0][0]
                first = False
            _count(report, ingest(connection, batch.found, batch.rejects))
        done += batch.candidates
        work.progress(Progress(done, total, report.rows))
        batch = next(batches, None)


def _rebuild(work: _Work, store: Path) -> None:
    """A new store from ledger and records, then the old one's place. The old one stays as it is until then."""
    if work.selection is not None:
        raise BadInput(Problem("--rebuild makes the whole store anew: it can't be given a selection",
                               hint="campaign collect --rebuild"))  # fmt: skip
    check_replaceable(store, work.wait_s, work.note)
    store.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(store, _REBUILD)
    attempts = ledgercopy.attempts(work.project.ledger_path)
    # records may have been moved with their run root: every run is looked for below every root
    roots = {attempt.run_root for attempt in attempts} | {str(root) for root in work.project.run_roots().values()}
    runs = {attempt.run_id for attempt in attempts}
    everywhere = [Attempt(root, run_id, 0) for root in sorted(roots) for run_id in runs]
    new = store.with_name(f".{store.name}.{_REBUILD}.{os.getpid()}")
    try:
        _update(work, new, everywhere)
        if not work.force:
            _refuse_to_lose(store, new, work)
        with new.open("rb") as file:
            os.fsync(file.fileno())
        replace_store(new, store, work.wait_s)
    finally:
        remove_store(new)
    work.report.rebuilt = True


def _refuse_to_lose(store: Path, new: Path, work: _Work) -> None:
    """Raise BadInput when final records of the old store are in the new one no more: away, or set aside as damaged."""
    try:
        old = _look(store, work).known
    except NotNow:
        raise
    except CampaignError:
        return  # damaged, or not a store at all: nothing in it that could be kept
    now = _look(new, work).known
    lost = {key: Path(known.path) for key, known in old.items() if known.final and key not in now}
    damaged = [reject for reject in work.report.rejects if _record_of(reject.path) in lost]
    gone = [lost[key] for key in lost.keys() - {_record_of(reject.path) for reject in damaged}]
    hint = "campaign collect --rebuild --force"
    problems = [
        Problem(
            f"{reason}; the store has this record from before it was damaged, and stays as it is",
            path,
            hint=f"put the folder back as it was, or give the record up (it is then set aside): {hint}",
        )
        for path, reason in damaged[:TOLD]
    ]
    if len(damaged) > TOLD:
        message = f"{len(damaged) - TOLD} more of {len(old)} records in the store are damaged on disk"
        problems.append(Problem(message, str(store), hint=f"{hint} sets them aside"))
    if gone:
        some = ", ".join(str(path) for path in sorted(gone)[:TOLD])
        message = f"{len(gone)} of {len(old)} records in the store are no longer on disk ({some}); it stays as it is"
        problems.append(Problem(message, str(store), hint=f"mount the run root, or accept the loss: {hint}"))
    if problems:
        raise BadInput(problems)


def _record_of(path: str) -> tuple[str, int] | None:
    """(run_id, attempt) of a record's folder."""
    named = attempt_of(Path(path).name)
    return None if named is None else (Path(path).parent.name, named[0])


def _look(store: Path, work: _Work) -> _State:
    """What the store knows, read without shutting out other readers."""
    if not store_exists(store):
        return _State()
    with open_store(store, write=False, wait_s=work.wait_s, note=work.note) as connection:
        rejects = connection.execute("SELECT path FROM data.rejects").fetchall()
        return _State(
            fact(connection, ledgercopy.FACT),
            known_records(connection),
            frozenset(path for (path,) in rejects),
            connection.execute("SELECT count(*) FROM data.runs").fetchall()[0][0],
        )


def _unchanged(candidate: Candidate, state: _State) -> bool:
    """True for a partial record that hasn't grown since it was collected, and for a copy of a known final one."""
    known = state.known.get((candidate.run_id, candidate.attempt))
    if known is None or known.final != candidate.final:
        return False
    with suppress(OSError):
        if candidate.final:
            text = (candidate.path / RECORD_FILE).read_bytes()
            return hashlib.sha256(text).hexdigest() == known.fingerprint
        return known.path == str(candidate.path) and partial_signature(candidate.path)[0] == known.fingerprint
    return False


def _vanished(state: _State, scan: Scan) -> frozenset[str]:
    """Rejects whose record somebody has moved away."""
    there = {str(candidate.path) for candidate in scan.candidates}
    return frozenset(
        path for path in state.rejects - there if not any(path.startswith(folder) for folder in scan.unreadable)
    )


def _count(report: CollectReport, done: Ingested) -> None:
    report.final += done.final
    report.partial += done.partial
    report.replaced += done.replaced
    report.rows += done.rows
    report.rejects += [Reject(path, reason) for path, reason in done.rejects.items()]


# -- reading ---------------------------------------------------------------------------------------------------------


@dataclass
class _Batch:
    """Records that go into the store in one transaction."""

    found: list[Found] = field(default_factory=list)
    rejects: dict[str, str] = field(default_factory=dict)
    candidates: int = 0
    rows: int = 0


def _batches(candidates: Iterable[Candidate]) -> Iterator[_Batch]:
    """Checked records, bounded in number and rows, so that memory and transactions stay small."""
    batch = _Batch()
    with ThreadPoolExecutor(READERS) as pool:
        pending = iter(candidates)
        while ahead := list(islice(pending, READ_AHEAD)):
            for candidate, outcome in zip(ahead, pool.map(_read, ahead), strict=True):
                batch.candidates += 1
                if isinstance(outcome, Found):
                    batch.found.append(outcome)
                    batch.rows += outcome.rows
                elif outcome is not None:
                    batch.rejects[str(candidate.path)] = outcome
            if batch.rows >= BATCH_ROWS or len(batch.found) >= BATCH_RECORDS:
                yield batch
                batch = _Batch()
    if batch.candidates:
        yield batch


def _read(candidate: Candidate) -> Found | str | None:
    """A checked record, why it is set aside, or None when it is no longer there."""
    try:
        if candidate.final:
            return read_final(candidate.path)
        try:
            return read_partial(candidate.path)
        except FileNotFoundError:  # its head has just finished it
            return read_final(candidate.path.with_suffix(""))
    except FileNotFoundError:
        return None
    except BadRecord as error:
        return str(error)
    except OSError as error:
        return f"can't be read: {error.strerror or error}"
