"""One table of a record on disk: a Parquet file, or an Arrow stream that may be cut anywhere.

Checked are size, SHA-256, and columns and types: the fixed schema of `campaign.tables`, no inference.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaign.tables import RECORD_SCHEMA, record_schema

if TYPE_CHECKING:
    import pyarrow

PARQUET_SUFFIX = ".parquet"
STREAM_SUFFIX = ".arrows"


class BadRecord(Exception):
    """A record that can't be taken, and why."""


def check_digest(opened: BufferedReader, name: str, size: int, sha256: str) -> None:
    """Raise BadRecord unless the file has this size and hash; leaves the file at its beginning."""
    found = os.fstat(opened.fileno()).st_size
    if found != size:
        raise BadRecord(f"{name} has {found} bytes, record.json says {size}: it is cut or changed")
    if hashlib.file_digest(opened, "sha256").hexdigest() != sha256:
        raise BadRecord(f"{name} has another SHA-256 than record.json says: it is damaged or changed")
    opened.seek(0)


def parquet_rows(opened: BufferedReader, name: str, table: str) -> int:
    """Rows of a Parquet file whose columns are those of the table. Raises BadRecord."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        footer = pq.ParquetFile(opened)
    except (pa.ArrowException, OSError) as error:
        raise BadRecord(f"{name} is not a Parquet file: {error}") from error
    _check_columns(footer.schema_arrow, name, table)
    return int(footer.metadata.num_rows)


def read_stream(path: Path, table: str) -> pyarrow.Table | None:
    """The whole batches of a stream; None when there is no file or not one whole batch. Raises BadRecord."""
    import pyarrow as pa

    try:
        source = pa.OSFile(str(path))
    except FileNotFoundError:
        return None
    with source:
        batches = list(_whole_batches(source, path.name, table))
    return pa.Table.from_batches(batches) if batches else None


def _whole_batches(source: Any, name: str, table: str) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow as pa

    try:
        reader = pa.ipc.open_stream(source)
    except (pa.ArrowException, OSError):
        return  # cut before the schema was on disk
    _check_columns(reader.schema, name, table)
    while True:
        try:
            batch = reader.read_next_batch()
            batch.validate(full=True)
        except (StopIteration, pa.ArrowException, OSError):
            return  # the end, or the batch that was being written when the head died
        yield batch


def _check_columns(schema: pyarrow.Schema, name: str, table: str) -> None:
    """Raise BadRecord with the first difference between a file's columns and the table's."""
    written = (schema.metadata or {}).get(b"campaign_schema")
    if written is None or not written.isdigit():
        raise BadRecord(f"{name} lacks the metadata campaign_schema")
    if int(written) > RECORD_SCHEMA:
        raise BadRecord(f"{name} has schema {int(written)}, this campaign knows {RECORD_SCHEMA}")
    expected = record_schema(table)
    if schema.names != expected.names:
        raise BadRecord(f"{name} has the columns {', '.join(schema.names)}; expected {', '.join(expected.names)}")
    for got, want in zip(schema, expected, strict=True):
        if got.type != want.type:
            raise BadRecord(f"{name}: column {want.name} is {got.type}; expected {want.type}")
