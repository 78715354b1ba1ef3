"""The record's tables: columns, types, units and meaning, once, for the writer, the store and the docs view.

Types are DuckDB names; `record_schema` gives the fixed Arrow schema. Seconds end in `_s`; NULL means not measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow

RECORD_SCHEMA = 1


class Column(NamedTuple):
    """One column of a record table."""

    name: str
    type: str
    unit: str
    meaning: str


EPOCHS = (
    Column("epoch", "INTEGER", "", "epoch, from 0"),
    Column("warmup", "BOOLEAN", "", "left out of medians"),
    Column("epoch_time_s", "DOUBLE", "s", "wall time of the slowest rank, without validation and checkpoint"),
    Column("epoch_time_min_s", "DOUBLE", "s", "wall time of the fastest rank"),
    Column("slowest_rank", "INTEGER", "", "rank whose epoch took longest"),
    Column("steps", "INTEGER", "", "optimizer steps of the epoch (largest over ranks)"),
    Column("samples_seen", "BIGINT", "", "samples over all ranks, duplicates counted"),
    Column("samples_unique", "BIGINT", "", "distinct samples over all ranks"),
    Column("duplication", "DOUBLE", "", "samples_seen / samples_unique"),
    Column("order_hash", "VARCHAR", "", "hash of the order in which samples were visited"),
    Column("loss", "DOUBLE", "", "training loss, mean over ranks"),
    Column("val_loss", "DOUBLE", "", "validation loss"),
    Column("data_wait_s", "DOUBLE", "s", "waiting for the loader, slowest rank, sum over the epoch"),
    Column(
        "comm_exposed_s", "DOUBLE", "s", "communication not hidden behind compute, slowest rank, sum over the epoch"
    ),
    Column("energy_wh", "DOUBLE", "Wh", "energy of the epoch within energy_scope"),
    Column("energy_scope", "VARCHAR", "", "gpu | module | cpu | node"),
)

STEPS = (
    Column("rank", "INTEGER", "", "global rank (only raw ranks are kept step by step)"),
    Column("step", "BIGINT", "", "optimizer step, from 0 over all epochs"),
    Column("epoch", "INTEGER", "", "epoch, from 0"),
    Column("t_s", "DOUBLE", "s", "end of the step since job_start, on the head's clock"),
    Column("data_wait_s", "DOUBLE", "s", "waiting for the next batch"),
    Column("h2d_s", "DOUBLE", "s", "copy to the device"),
    Column("forward_s", "DOUBLE", "s", "forward pass"),
    Column("backward_s", "DOUBLE", "s", "backward pass, exposed communication included"),
    Column("comm_exposed_s", "DOUBLE", "s", "communication not hidden behind compute"),
    Column("optimizer_s", "DOUBLE", "s", "optimizer step"),
    Column("step_s", "DOUBLE", "s", "the whole step"),
    Column("samples", "INTEGER", "", "samples of this rank in this step"),
    Column("loss", "DOUBLE", "", "training loss of this rank"),
)

WINDOWS = (
    Column("epoch", "INTEGER", "", "epoch, from 0"),
    Column("window", "INTEGER", "", "window within the epoch, from 0 (record.window_steps steps each)"),
    Column("metric", "VARCHAR", "", "step part, a column of steps"),
    Column("unit", "VARCHAR", "", "unit of the values"),
    Column("n", "INTEGER", "", "ranks that reported; one value a rank: its mean per step in the window"),
    Column("min", "DOUBLE", "", "smallest value over ranks"),
    Column("min_rank", "INTEGER", "", "rank of min"),
    Column("median", "DOUBLE", "", "median over ranks"),
    Column("p99", "DOUBLE", "", "99th percentile over ranks"),
    Column("max", "DOUBLE", "", "largest value over ranks"),
    Column("max_rank", "INTEGER", "", "rank of max"),
)

EVENTS = (
    Column("kind", "VARCHAR", "", "phase | observe | power"),
    Column("name", "VARCHAR", "", "phase or metric"),
    Column("rank", "INTEGER", "", "global rank; NULL for head and agents"),
    Column("node", "VARCHAR", "", "host name"),
    Column("t_us", "BIGINT", "us", "since job_start, on the head's clock"),
    Column("value", "DOUBLE", "", "NULL for a phase"),
    Column("unit", "VARCHAR", "", "unit of value"),
    Column("labels", "MAP(VARCHAR, VARCHAR)", "", "labels of an observation"),
    Column("step", "BIGINT", "", "step of an observation; NULL when it has none"),
)

RECORD_TABLES: dict[str, tuple[Column, ...]] = {"epochs": EPOCHS, "steps": STEPS, "windows": WINDOWS, "events": EVENTS}

PHASES = (
    "job_start",
    "staged",
    "agents_up",
    "launched",
    "python_up",
    "imports_done",
    "pg_ready",
    "first_collective",
    "first_batch",
    "first_step",
    "ranks_done",
    "record_written",
)
"""Start-up and end of a run, in order (contract section 2)."""

STEP_PARTS = ("data_wait_s", "h2d_s", "forward_s", "backward_s", "comm_exposed_s", "optimizer_s", "step_s")
"""The parts a step is split into; windows aggregate each."""


def record_schema(table: str) -> pyarrow.Schema:
    """The fixed Arrow schema of one record table, with the metadata that `collect` checks."""
    import pyarrow as pa

    types = {
        "INTEGER": pa.int32(),
        "BIGINT": pa.int64(),
        "DOUBLE": pa.float64(),
        "BOOLEAN": pa.bool_(),
        "VARCHAR": pa.string(),
        "MAP(VARCHAR, VARCHAR)": pa.map_(pa.string(), pa.string()),
    }
    fields = [pa.field(column.name, types[column.type]) for column in RECORD_TABLES[table]]
    return pa.schema(fields, metadata={"campaign_schema": str(RECORD_SCHEMA)})
