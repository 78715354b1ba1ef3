"""What of a run is mirrored to a tracking server: parameters, metrics with steps, tags, files. Read from the views."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Row = dict[str, Any]
KEY_SIZE, PARAM_SIZE, TAG_SIZE = 250, 6000, 5000
"""Characters that MLflow 3 takes of a name, a parameter's value, a tag's value."""
RUN_FILES = ("record.json", "console.log", "failed.log")
"""Of the record folder; the tables are in the store."""
EPOCH_METRICS = ("epoch_time_s", "epoch_time_min_s", "steps", "samples_seen", "samples_unique", "duplication", "loss",
                 "val_loss", "data_wait_s", "comm_exposed_s", "energy_wh")  # fmt: skip
STEP_METRICS = ("step_s", "data_wait_s", "h2d_s", "forward_s", "backward_s", "comm_exposed_s", "optimizer_s", "loss")
RUN_METRICS = ("gpu_h", "node_h", "world_size", "attempts")
RUN_PARAMS = ("site", "study", "series", "workload", "strategy", "scaling", "nodes", "ranks_per_node", "world_size",
              "local_batch", "global_batch", "repeat")  # fmt: skip
RUN_TAGS = ("site", "study", "series", "plan_id", "state", "fail_class", "valid", "why_invalid", "oversubscribed")
RECORD_TAGS = ("tag", "complete", "reason", "commit", "dirty", "image_digest", "data_digest", "resumed_from",
               "exit_code", "exit_rank", "exit_node", "path")  # fmt: skip
RECORD_JSON = ("nodes", "versions", "host", "audit")

RUNS = """
SELECT runs.*, records.* EXCLUDE (run_id, site, state, fail_class, nodes, ranks_per_node, world_size),
  records.nodes AS node_names
FROM runs JOIN records USING (run_id)
WHERE list_contains(?, run_id) AND records.attempt = (SELECT max(attempt) FROM records r WHERE r.run_id = runs.run_id)
ORDER BY runs.site, runs.study, runs.run_id
"""


@dataclass(frozen=True, slots=True)
class Metric:
    """One number."""

    key: str
    value: float
    time_ms: int
    """Since 1970, always the same for the same number: sending it twice leaves one."""
    step: int


@dataclass(slots=True)
class Mirrored:
    """All that is sent about one run."""

    run_id: str
    attempt: int
    study: str
    name: str
    state: str
    started_ms: int
    ended_ms: int
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    metrics: list[Metric] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    """Of the record."""
    figures: list[Path] = field(default_factory=list)
    """Of the study: they change when another run of it ends."""

    def digest(self) -> str:
        """Changes when anything changes that would be sent, but for figures."""
        text = json.dumps([self.attempt, self.name, self.state, self.started_ms, self.ended_ms, self.params, self.tags,
                           [(m.key, m.value, m.time_ms, m.step) for m in self.metrics]], sort_keys=True)  # fmt: skip
        return _digest(text, self.files)

    def figures_digest(self) -> str:
        """Changes when a figure does."""
        return _digest("", self.figures)


def mirrored(connection: DuckDBPyConnection, run_ids: Sequence[str], *, steps: bool = False) -> list[Mirrored]:
    """Those of `run_ids` that left a record. steps: also every step of the ranks that kept them.

    One query for each view whatever the number of runs; all of it is in memory, so give some hundred at a time.
    """
    runs = {run.run_id: run for run in map(_run, _rows(connection, RUNS, [list(run_ids)]))}
    views = [("epochs", "epoch", _epochs), ("observations", "name, labels::VARCHAR, rank, step", _observations),
             ("phases", "median_s, phase", _phases), *([("steps", "rank, step", _steps)] if steps else [])]  # fmt: skip
    for view, order, metrics in views:
        sql = f"SELECT * FROM {view} WHERE list_contains(?, run_id) ORDER BY run_id, {order}"
        for run_id, rows in itertools.groupby(_rows(connection, sql, [list(runs)]), key=lambda row: row["run_id"]):
            run = runs[run_id]
            run.metrics += metrics([row for row in rows if row["attempt"] == run.attempt], run)
    return list(runs.values())


def _digest(text: str, files: Sequence[Path]) -> str:
    hashed = hashlib.sha256(text.encode())
    for path in sorted(files):
        hashed.update(f"\0{path.name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return hashed.hexdigest()[:32]


def key(text: str) -> str:
    """A name that MLflow takes: letters, digits, `_ - . space : /`."""
    return re.sub(r"[^\w\-. :/]", "_", text, flags=re.ASCII)[:KEY_SIZE]


def _rows(connection: DuckDBPyConnection, sql: str, values: Sequence[Any]) -> list[Row]:
    answer = connection.execute(sql, values)
    names = [column[0] for column in answer.description or ()]
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]


def _ms(moment: datetime | None) -> int:
    """Milliseconds since 1970; the store's times are UTC without saying so."""
    if moment is None:
        return 0
    return round((moment.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds() * 1000)


def _run(row: Row) -> Mirrored:
    started, ended = _ms(row["started"]), _ms(row["ended"])
    name = f"{row['study']} {row['site']} {row['nodes']}x{row['ranks_per_node']} r{row['repeat']}"
    run = Mirrored(row["run_id"], row["attempt"], row["study"], name, row["state"], started, ended or started)
    asked = json.loads(row["params"] or "{}")
    run.params = {name: _text(row[name], PARAM_SIZE) for name in RUN_PARAMS if row[name] is not None}
    run.params |= {key(name): _text(value, PARAM_SIZE) for name, value in asked.items() if name not in run.params}
    tags = {name: row[name] for name in RUN_TAGS} | {name: row[name] for name in RECORD_TAGS}
    tags |= {name: row["node_names" if name == "nodes" else name] for name in RECORD_JSON}
    run.tags = {f"campaign.{name}": _text(value, TAG_SIZE) for name, value in tags.items() if value is not None}
    run.tags |= {"campaign.run_id": row["run_id"], "campaign.attempt": str(row["attempt"])}
    if row["commit"]:
        run.tags["mlflow.source.git.commit"] = row["commit"]
    run.tags |= {"mlflow.source.name": _text(row["workload"] or "", TAG_SIZE), "mlflow.source.type": "JOB"}
    for name in RUN_METRICS:
        run.metrics += _metric(name, row[name], run.ended_ms, 0)
    folder = Path(row["path"])
    run.files = [folder / name for name in RUN_FILES if (folder / name).is_file()]
    return run


def _text(value: Any, most: int) -> str:
    if isinstance(value, (dict, list)):
        value = json.dumps(value, sort_keys=True)
    return str(value)[:most]


def _metric(name: str, value: Any, time_ms: int, step: int) -> Iterator[Metric]:
    """Nothing for what wasn't measured."""
    if value is not None and math.isfinite(float(value)):
        yield Metric(key(name), float(value), time_ms, int(step))


def _epochs(rows: Sequence[Row], run: Mirrored) -> Iterator[Metric]:
    spent = 0.0
    for row in rows:
        spent += row["epoch_time_s"] or 0.0
        for name in EPOCH_METRICS:
            yield from _metric(f"epoch/{name}", row[name], run.started_ms + round(spent * 1000), row["epoch"])


def _steps(rows: Sequence[Row], run: Mirrored) -> Iterator[Metric]:
    for row in rows:
        time_ms = run.started_ms + round((row["t_s"] or 0.0) * 1000)
        for name in STEP_METRICS:
            yield from _metric(f"step/rank{row['rank']}/{name}", row[name], time_ms, row["step"])


def _observations(rows: Sequence[Row], run: Mirrored) -> Iterator[Metric]:
    for row in rows:
        labels = row["labels"] if isinstance(row["labels"], dict) else json.loads(row["labels"] or "{}")
        parts = [row["name"], *(f"{name}:{value}" for name, value in sorted(labels.items()))]
        if row["rank"]:
            parts.append(f"rank{row['rank']}")
        yield from _metric("/".join(parts), row["value"], run.started_ms, row["step"] or 0)


def _phases(rows: Sequence[Row], run: Mirrored) -> Iterator[Metric]:
    for row in rows:
        yield from _metric(f"phase/{row['phase']}_s", row["max_s"], run.started_ms, 0)
