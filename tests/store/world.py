"""A ledger and records on disk, made after docs/contract.md and without the code that normally writes them."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

# spelled out, not taken from campaign.tables: a change of the record's format must be noticed here
I32, I64, F64, TEXT, FLAG = pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.bool_()
TABLES: dict[str, list[tuple[str, pa.DataType]]] = {
    "epochs": [
        ("epoch", I32), ("warmup", FLAG), ("epoch_time_s", F64), ("epoch_time_min_s", F64), ("slowest_rank", I32),
        ("steps", I32), ("samples_seen", I64), ("samples_unique", I64), ("duplication", F64), ("order_hash", TEXT),
        ("loss", F64), ("val_loss", F64), ("data_wait_s", F64), ("comm_exposed_s", F64), ("energy_wh", F64),
        ("energy_scope", TEXT),
    ],
    "steps": [
        ("rank", I32), ("step", I64), ("epoch", I32), ("t_s", F64), ("data_wait_s", F64), ("h2d_s", F64),
        ("forward_s", F64), ("backward_s", F64), ("comm_exposed_s", F64), ("optimizer_s", F64), ("step_s", F64),
        ("samples", I32), ("loss", F64),
    ],
    "windows": [
        ("epoch", I32), ("window", I32), ("metric", TEXT), ("unit", TEXT), ("n", I32), ("min", F64),
        ("min_rank", I32), ("median", F64), ("p99", F64), ("max", F64), ("max_rank", I32),
    ],
    "events": [
        ("kind", TEXT), ("name", TEXT), ("rank", I32), ("node", TEXT), ("t_us", I64), ("value", F64), ("unit", TEXT),
        ("labels", pa.map_(TEXT, TEXT)), ("step", I64),
    ],
}  # fmt: skip

Rows = Sequence[Mapping[str, Any]]


def schema_of(table: str, version: int = 1) -> pa.Schema:
    """The table's Arrow schema with the metadata that the contract asks for."""
    return pa.schema(TABLES[table], metadata={"campaign_schema": str(version)})


def arrow(table: str, rows: Rows, version: int = 1) -> pa.Table:
    """Rows as Arrow; columns that a row doesn't give are NULL."""
    return pa.Table.from_pylist([dict(row) for row in rows], schema=schema_of(table, version))


def epoch_rows(times: Sequence[float], *, unique: int = 6000, warmup: int = 1, **more: Any) -> list[dict[str, Any]]:
    """One row an epoch; the first `warmup` are warm-up."""
    return [
        {"epoch": index, "warmup": index < warmup, "epoch_time_s": time, "steps": 10, "samples_seen": unique,
         "samples_unique": unique, "duplication": 1.0, **more}
        for index, time in enumerate(times)
    ]  # fmt: skip


def step_rows(count: int, rank: int = 0) -> list[dict[str, Any]]:
    """Steps with values that can be told apart."""
    return [
        {"rank": rank, "step": step, "epoch": step // 10, "t_s": step * 0.5, "step_s": 0.1 + step / 1000, "samples": 64}
        for step in range(count)
    ]


@dataclass
class World:
    """One project's ledger, store and run root. `World` is what `collect` takes as its sources."""

    folder: Path
    run_root: Path = field(init=False)
    ledger_path: Path = field(init=False)
    store: Path = field(init=False)
    extra_roots: dict[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.run_root = self.folder / "runs root"
        self.ledger_path = self.folder / ".campaign" / "ledger.sqlite"
        self.store = self.folder / "campaign.duckdb"
        self.ledger_path.parent.mkdir(parents=True, exist_ok=True)
        ledger = resources.files("campaign.submit").joinpath("schema.sql").read_text(encoding="utf-8")
        with self.sqlite() as db:
            db.executescript(ledger)
            db.execute(
                "INSERT INTO plans (plan_id, created, overrides, n_runs) VALUES "
                "('p1', '2026-11-01T00:00:00.000000Z', '{}', 0), ('p2', '2026-11-02T00:00:00.000000Z', '{}', 0)"
            )

    def run_roots(self) -> dict[str, Path]:
        """As `Project.run_roots`."""
        return {"alpha": self.run_root, **self.extra_roots}

    @contextmanager
    def sqlite(self) -> Iterator[sqlite3.Connection]:
        """The ledger, to write into; committed and closed at the end."""
        with closing(sqlite3.connect(self.ledger_path)) as db:
            db.execute("PRAGMA synchronous = OFF")  # a test's ledger may be lost
            with db:
                yield db

    # -- ledger ------------------------------------------------------------------------------------------------------

    def plan_run(self, run_id: str, **values: Any) -> str:
        """A run in the ledger; anything may be given, the rest has defaults. Gives the 16-digit run id."""
        run_id = full_id(run_id)
        world = values.setdefault("nodes", 1) * values.setdefault("ranks_per_node", 1)
        spec = {"baseline": values.pop("baseline", "smallest"), "staging": "none", "redirect": True}
        row: dict[str, Any] = {
            "run_id": run_id, "site": "alpha", "study": "strong", "series": "strategy=ddp", "plan_id": "p1",
            "workload": "training.workloads.hydrology", "strategy": "ddp", "scaling": "strong",
            "params": json.dumps({"lr": 0.001, "strategy": "ddp"}), "cpus_per_rank": 1, "gpus_per_rank": 0,
            "world_size": world, "local_batch": None, "global_batch": 256, "repeat": 0, "ord": 0, "gate": 0, "gated": 0,
            "pack": "false", "oversubscribed": 0, "state": "done", "attempts": 1, "site_sha256": "", "study_sha256": "",
            "run_root": str(self.run_root), "spec": json.dumps(spec), "changed": "2026-11-01T00:00:00.000000Z",
        } | values  # fmt: skip
        self.insert("runs", row)
        return run_id

    def queue(self, run_id: str, attempt: int = 1, *, root: Path | None = None, **values: Any) -> None:
        """A job in the ledger for one attempt at a run."""
        run_id = full_id(run_id)
        tag = values.pop("tag", f"c{run_id[:8]}{attempt:04d}")
        row = {
            "site": "alpha", "tag": tag, "array_index": 0, "run_id": run_id, "attempt": attempt, "scheduler": "slurm",
            "job_id": "4711", "user": "ada",
            "host": "login1", "cluster": "alpha", "partition": "batch", "account": "acc", "state": "done",
            "intent_at": "2026-11-01T00:00:00.000000Z", "submitted_at": "2026-11-01T00:00:01.000000Z",
            "started": "2026-11-01T00:01:00.000000Z", "ended": "2026-11-01T00:11:00.000000Z", "exit_code": 0,
            "state_seen_at": "2026-11-01T00:11:30.000000Z", "submit_dir": str((root or self.run_root) / "submit" / tag),
        } | values  # fmt: skip
        self.insert("jobs", row)

    def insert(self, table: str, row: Mapping[str, Any]) -> None:
        """One row of the ledger; columns that its version doesn't have are left out."""
        with self.sqlite() as db:
            there = {column[1] for column in db.execute(f"PRAGMA table_info({table})")}
            row = {name: value for name, value in row.items() if name in there}
            marks = ", ".join("?" * len(row))
            db.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))

    def change(self, sql: str, *values: Any) -> None:
        """Any other change of the ledger."""
        with self.sqlite() as db:
            db.execute(sql, values)

    # -- records -----------------------------------------------------------------------------------------------------

    def run_dir(self, run_id: str, root: Path | None = None) -> Path:
        """Folder of a run."""
        run_id = full_id(run_id)
        return (root or self.run_root) / "runs" / run_id[:2] / run_id

    def record(
        self, run_id: str, attempt: int = 1, *, root: Path | None = None, tables: Mapping[str, Rows] | None = None,
        **values: Any,
    ) -> Path:  # fmt: skip
        """A final record; `values` replace keys of record.json, a value of `...` leaves the key out."""
        folder = self.run_dir(run_id, root) / f"a{attempt}"
        folder.mkdir(parents=True)
        files = {}
        for table, rows in (tables if tables is not None else {"epochs": epoch_rows([9.0, 5.0, 5.2])}).items():
            path = folder / f"{table}.parquet"
            pq.write_table(arrow(table, rows), path, compression="zstd")
            files[path.name] = file_entry(path, len(rows))
        document = record_json(full_id(run_id), attempt) | {"files": files} | values
        document = {key: value for key, value in document.items() if value is not ...}
        (folder / "record.json").write_text(json.dumps(document), encoding="utf-8")
        return folder

    def partial(
        self, run_id: str, attempt: int = 1, *, root: Path | None = None, tables: Mapping[str, Rows] | None = None,
        batches: int = 3,
    ) -> Path:  # fmt: skip
        """A partial record: each table as an Arrow stream of about `batches` batches."""
        folder = self.run_dir(run_id, root) / f"a{attempt}.partial"
        folder.mkdir(parents=True, exist_ok=True)
        for table, rows in (tables if tables is not None else {"steps": step_rows(30)}).items():
            whole = arrow(table, rows)
            with pa.OSFile(str(folder / f"{table}.arrows"), "wb") as sink, pa.ipc.new_stream(sink, whole.schema) as out:
                for batch in whole.to_batches(max_chunksize=max(1, -(-len(rows) // batches))):
                    out.write_batch(batch)
        return folder

    def measured(self, run_id: str, times: Sequence[float] = (9.0, 5.0, 5.2), **values: Any) -> str:
        """A run that is done, with its job and its record."""
        known = {"unique", "record"}
        unique = values.pop("unique", 6000)
        record = values.pop("record", {})
        run_id = self.plan_run(run_id, **{key: value for key, value in values.items() if key not in known})
        self.queue(run_id, site=values.get("site", "alpha"))
        self.record(run_id, tables={"epochs": epoch_rows(times, unique=unique)}, **record)
        return run_id


def full_id(run_id: str) -> str:
    """A short name as a run id: 16 hex digits, and other names other folders."""
    return run_id if len(run_id) == 16 else hashlib.sha256(run_id.encode()).hexdigest()[:16]


def file_entry(path: Path, rows: int | None) -> dict[str, Any]:
    """What record.json says of a file."""
    data = path.read_bytes()
    return {"rows": rows, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def record_json(run_id: str, attempt: int) -> dict[str, Any]:
    """record.json with every key of the contract."""
    return {
        "schema": 1, "complete": True, "missing_nodes": [], "run_id": run_id, "attempt": attempt, "site": "alpha",
        "tag": f"c{run_id[:8]}{attempt:04d}", "state": "done", "fail_class": None, "reason": None,
        "exit": {"code": 0, "signal": None, "rank": None, "node": None}, "started": "2026-11-01T00:01:02.500000Z",
        "ended": "2026-11-01T00:11:02.500000Z", "world_size": 1, "nodes": ["n1"], "ranks_per_node": 1,
        "clock_offsets_s": {"n1": 0.0001}, "host": {"cpu": "EPYC", "cores": 48, "affinity": "0-47", "gpu": [],
        "driver": None, "oversubscribed": False}, "versions": {"python": "3.11.7"}, "commit": "abc", "dirty": False,
        "image_digest": None, "data_digest": "d1", "argv": ["python", "train.py"], "env_set": {"OMP_NUM_THREADS": "1"},
        "env_kept": {}, "env_scrubbed": ["SLURM_JOB_ID"], "audit": {"samples": 6000, "unique": 6000, "duplication": 1.0,
        "order_hashes": []}, "files": {}, "bytes_dropped": 0, "resumed_from": None,
    }  # fmt: skip


@dataclass
class Sources:
    """What `collect` needs, for a process of its own."""

    ledger_path: Path

    def run_roots(self) -> dict[str, Path]:
        """None but those of the ledger."""
        return {}
