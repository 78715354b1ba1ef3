"""The ledger: plans, runs and jobs in one SQLite file, apart from the store.

Rollback journal and synchronous=FULL: a commit is on disk when it returns, and the file works on GPFS and Lustre, where
WAL does not. Every change is one short transaction; a state is never changed by two commands at once.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any, Self

from campaign.errors import BadInput, Problem
from campaign.lockholder import busy_ledger
from campaign.plan.model import Plan, PlannedRun
from campaign.plan.progress import Progress, counted, silent

SCHEMA = 3
"""2: the tables `charges` and `origins`; 3: what retries need. An older ledger is brought up when it is opened."""

_ADDED = {
    3: (
        "ALTER TABLE runs ADD COLUMN walltime_s INTEGER; ALTER TABLE jobs ADD COLUMN again TEXT;"
        "ALTER TABLE jobs ADD COLUMN expected_start TEXT; ALTER TABLE jobs ADD COLUMN over_since TEXT;"
        "ALTER TABLE jobs ADD COLUMN fail_class TEXT; ALTER TABLE jobs ADD COLUMN failed_nodes TEXT;"
        "ALTER TABLE jobs ADD COLUMN walltime_s INTEGER; ALTER TABLE jobs ADD COLUMN avoided TEXT;"
        "ALTER TABLE jobs ADD COLUMN cancel_at TEXT;"
    )
}
"""Columns that a schema brought to tables of older ones."""


def now() -> str:
    """The time as the ledger writes it: UTC, microseconds, Z."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def age_s(moment: str) -> float:
    """Seconds since a ledger time."""
    return (datetime.now(UTC) - datetime.fromisoformat(moment.replace("Z", "+00:00"))).total_seconds()


def seconds_between(started: str, ended: str) -> float:
    """Seconds from one ledger time to another."""
    first, last = (datetime.fromisoformat(moment.replace("Z", "+00:00")) for moment in (started, ended))
    return (last - first).total_seconds()


@dataclass(frozen=True, slots=True)
class AddReport:
    """What adding a plan changed."""

    new: int
    """Runs the ledger didn't know."""
    known: int
    """Runs it knew: their state and measurements stay."""
    done: int
    """Of those, already measured."""
    superseded: int
    """Still planned runs of an older plan that this one replaces."""


class Ledger:
    """One open ledger. Use as a context manager; times and JSON are text, booleans 0 or 1."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.db = connection
        self.path = path

    @classmethod
    def open(cls, path: Path, *, write: bool = True, wait_s: float = 10.0, new: bool = False) -> Self:
        """Open the ledger, making it when `write`. Raises NotNow when locked, BadInput for a newer schema or damage.

        Where plans lie beside it there has been a ledger: a missing or empty one is lost then (BadInput), unless `new`.
        """
        if write:
            path.parent.mkdir(parents=True, exist_ok=True)
        elif not path.exists() and (new or not list(path.with_name("plans").glob("*.json"))):
            raise BadInput(Problem("nothing has been planned yet: there is no ledger", str(path),
                                   hint="campaign plan sites/local.yaml"))  # fmt: skip
        if not new and not (path.is_file() and path.stat().st_size):
            _check_not_lost(path)
        with _explained(path):
            connection = sqlite3.connect(path, timeout=wait_s, isolation_level=None)
        connection.row_factory = sqlite3.Row
        ledger = cls(connection, path)
        with _explained(path):
            connection.execute("PRAGMA synchronous=FULL")
            # KiB: run ids are hashes, so the index of a large plan is written and read all over the place
            connection.execute("PRAGMA cache_size=-131072")
            ledger._prepare(write)
        return ledger

    def _prepare(self, write: bool) -> None:
        tables = self.db.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'meta'").fetchone()[0]
        if tables:
            found = self._schema()
            if found > SCHEMA:
                raise BadInput(
                    Problem(
                        f"the ledger has schema {found}, this campaign knows {SCHEMA}",
                        str(self.path),
                        hint="update campaign to the version that wrote it: pip install -U campaign",
                    )
                )
            if found < SCHEMA:
                added = "".join(sql for schema, sql in _ADDED.items() if schema > found)
                self._make(f"{added} UPDATE meta SET value = '{SCHEMA}' WHERE key = 'schema';")
        elif write:
            self._make()

    def _make(self, more: str = "") -> None:
        """Create what isn't there yet, in one transaction."""
        sql = resources.files("campaign.submit").joinpath("schema.sql").read_text(encoding="utf-8")
        try:
            self.db.executescript(f"BEGIN IMMEDIATE;{sql}{more}COMMIT;")
        except sqlite3.OperationalError:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
            if not more or self._schema() != SCHEMA:  # else another command was quicker
                raise

    def _schema(self) -> int:
        return int(self.db.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.db.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One write transaction: all of it or nothing, and nobody else writes meanwhile."""
        with _explained(self.path):
            self.db.execute("BEGIN IMMEDIATE")
            try:
                yield self.db
            except BaseException:
                if self.db.in_transaction:  # a full disk has rolled it back already
                    self.db.execute("ROLLBACK")
                raise
            self.db.execute("COMMIT")

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """Rows of one SELECT."""
        with _explained(self.path):
            return self.db.execute(sql, values).fetchall()

    # -- plans -------------------------------------------------------------------------------------------------------

    def add_plan(self, plan: Plan, progress: Progress = silent, texts: Iterable[str] | None = None) -> AddReport:
        """Take the plan's runs that can run. Known runs keep state and attempts and move to this plan.

        `texts`: the JSON of the plan's runs, in order, where a saved plan has it already (`plan.store.run_texts`).
        """
        runs = [run for run in plan.runs if run.can_run]
        ids = [run.run_id for run in runs]
        known = self.states(ids)
        with self.transaction() as db:
            db.execute(
                "INSERT INTO plans (plan_id, created, overrides, n_runs) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (plan_id) DO UPDATE SET created = excluded.created",
                (plan.plan_id, plan.created, _json(plan.overrides), len(runs)),
            )
            db.executemany(
                "INSERT OR REPLACE INTO plan_runs VALUES (?, ?, ?)",
                [(plan.plan_id, run.run_id, run.order) for run in runs],
            )
            told = counted(runs, progress, "noting runs in the ledger", "runs")
            rows = _RunRows(plan, texts)
            db.executemany(_UPSERT_RUN, (rows.row(run) for run in told))
            superseded = self._supersede(db, plan)
        return AddReport(
            new=len(ids) - len(known),
            known=len(known),
            done=sum(state == "done" for state in known.values()),
            superseded=superseded,
        )

    def plan_before(self, plan: Plan) -> str | None:
        """The id of the newest plan with a run of the same study on the same site; it may be this very one."""
        pairs = sorted({(run.site, run.study) for run in plan.runs})
        rows = self.query(
            "SELECT plan_id FROM plans p WHERE EXISTS (SELECT 1 FROM plan_runs JOIN runs USING (run_id) "
            f"WHERE plan_runs.plan_id = p.plan_id AND (site, study) IN (VALUES {', '.join(['(?, ?)'] * len(pairs))})) "
            "ORDER BY created DESC LIMIT 1",
            [value for pair in pairs for value in pair],
        )
        return str(rows[0]["plan_id"]) if rows else None

    def states(self, run_ids: Iterable[str]) -> dict[str, str]:
        """States of those of the runs that the ledger knows."""
        states: dict[str, str] = {}
        for part in _chunks(list(run_ids)):
            marks = ",".join("?" * len(part))
            rows = self.query(f"SELECT run_id, state FROM runs WHERE run_id IN ({marks})", part)
            states.update((row["run_id"], row["state"]) for row in rows)
        return states

    @staticmethod
    def _supersede(db: sqlite3.Connection, plan: Plan) -> int:
        """Runs still planned that an older plan of the same study, site and overrides made, and this one doesn't."""
        count = 0
        for site, study in sorted({(run.site, run.study) for run in plan.runs}):
            count += db.execute(
                "UPDATE runs SET superseded_by = ?1, changed = ?5 WHERE site = ?2 AND study = ?3 AND state = 'planned' "
                "AND attempts = 0 AND superseded_by IS NULL AND plan_id <> ?1 AND plan_id IN "
                "(SELECT plan_id FROM plans WHERE overrides = ?4)",
                (plan.plan_id, site, study, _json(plan.overrides), now()),
            ).rowcount
        return count

    # -- runs --------------------------------------------------------------------------------------------------------

    def planned_runs(self, ids: Iterable[str]) -> dict[str, PlannedRun]:
        """Runs exactly as planned, by id."""
        runs = {}
        for part in _chunks(list(ids)):
            marks = ",".join("?" * len(part))
            for row in self.query(f"SELECT run_id, spec FROM runs WHERE run_id IN ({marks})", part):
                runs[row["run_id"]] = PlannedRun.from_json(json.loads(row["spec"]))
        return runs

    def run_rows(self, ids: Iterable[str]) -> list[sqlite3.Row]:
        """Ledger rows of runs, in plan order."""
        rows: list[sqlite3.Row] = []
        for part in _chunks(list(ids)):
            marks = ",".join("?" * len(part))
            rows += self.query(f"SELECT * FROM runs WHERE run_id IN ({marks})", part)
        return sorted(rows, key=lambda row: (row["site"], row["study"], row["ord"], row["run_id"]))

    def jobs_of(self, run_id: str) -> list[sqlite3.Row]:
        """All jobs of a run, oldest first."""
        return self.query("SELECT * FROM jobs WHERE run_id = ? ORDER BY attempt, intent_at", (run_id,))


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """SQLite's errors as ours."""
    try:
        yield
    except sqlite3.OperationalError as error:
        busy = busy_ledger(path, error)
        if busy is not None:
            raise busy from error
        raise BadInput(Problem(f"the ledger can't be used: {error}", str(path), hint=_hint(str(error)))) from error
    except sqlite3.DatabaseError as error:
        raise BadInput(
            Problem(
                f"not a ledger, or damaged: {error}",
                str(path),
                hint="campaign rebuild  makes it anew from plans, run folders and Slurm",
            )
        ) from error


def _hint(error: str) -> str:
    """What to do about an error of SQLite that is no damage."""
    if "full" in error:
        return "make room on that file system"
    if "readonly" in error:
        return "ask for the right to write there, or use a project folder of your own"
    return "a file that you may read and write must be there; campaign rebuild  makes a new one"


def _check_not_lost(path: Path) -> None:
    """Raise BadInput when plans lie where this ledger should be: planning or submitting anew would forget its jobs."""
    plans = len(list(path.with_name("plans").glob("*.json")))
    if plans:
        raise BadInput(
            Problem(f"the ledger is gone, though {plans} plan{'s lie' if plans > 1 else ' lies'} beside it", str(path),
                    hint="campaign rebuild  makes it anew from plans, run folders and Slurm")
        )  # fmt: skip


def _chunks(ids: Sequence[str], size: int = 900) -> Iterator[Sequence[str]]:
    """SQLite takes a bounded number of `?`."""
    for start in range(0, len(ids), size):
        yield ids[start : start + size]


def _json(value: Any) -> str:
    return _ENCODER.encode(value)


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)


_RUN_COLUMNS = (
    "run_id site study series plan_id workload strategy scaling params nodes ranks_per_node cpus_per_rank "
    "gpus_per_rank world_size local_batch global_batch repeat ord gate gated pack oversubscribed state site_sha256 "
    "study_sha256 spec changed"
).split()

_KEEP = {"run_id", "state"}
_UPSERT_RUN = (
    f"INSERT INTO runs ({', '.join(_RUN_COLUMNS)}) VALUES ({', '.join('?' * len(_RUN_COLUMNS))}) "
    "ON CONFLICT (run_id) DO UPDATE SET superseded_by = NULL, "
    # what a retry needs holds until the plan itself says something else
    "walltime_s = CASE WHEN json_extract(spec, '$.walltime_s') = json_extract(excluded.spec, '$.walltime_s') "
    "THEN walltime_s END, " + ", ".join(f"{name} = excluded.{name}" for name in _RUN_COLUMNS if name not in _KEEP)
)


class _RunRows:
    """Makes rows of `runs`; what the repeats of a point share is encoded once."""

    def __init__(self, plan: Plan, texts: Iterable[str] | None) -> None:
        self.plan = plan
        self._texts = iter(texts or ())
        self.moment = now()
        self._params: tuple[dict[str, Any], str] = ({}, "{}")

    def row(self, run: PlannedRun) -> tuple[Any, ...]:
        """Values in the order of `_RUN_COLUMNS`."""
        plan = self.plan
        if run.params is not self._params[0]:
            self._params = run.params, _json(run.params)
        workload = run.workload if run.workload is not None else _json(run.command)
        return (
            run.run_id, run.site, run.study, run.series, plan.plan_id, workload, run.strategy, run.scaling,
            self._params[1], run.nodes, run.ranks_per_node, run.cpus_per_rank, run.gpus_per_rank, run.world_size,
            run.local_batch, run.global_batch, run.repeat, run.order, run.gate, run.gated, run.pack,
            run.oversubscribed, "planned", plan.sites[run.site].sha256, plan.studies[run.study].sha256,
            self._text(run), self.moment,
        )  # fmt: skip

    def _text(self, run: PlannedRun) -> str:
        """The run as JSON: the next text that is this run's, else made here."""
        start = f'{{"run_id":"{run.run_id}"'
        for text in self._texts:  # those of runs that can't run are passed over
            if text.startswith(start):
                return text
        return _json(run.to_json())
