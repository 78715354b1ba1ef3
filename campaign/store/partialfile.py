"""Reading what a head that died had streamed: `a<N>.partial/`, Arrow streams that may be cut anywhere.

They are read as far as they go. Sizes tell whether the record has grown since it was last read; there are no hashes.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaign.store.recordfile import Found, attempt_of, check_columns, naive_utc, utc_of
from campaign.tables import RECORD_TABLES

if TYPE_CHECKING:
    import pyarrow

PARTIAL_FILE = "partial.json"
STREAM_SUFFIX = ".arrows"


def read_partial(folder: Path) -> Found:
    """Read `<run_id>/a<N>.partial` as far as it goes. Raises BadRecord; FileNotFoundError when it has gone."""
    fingerprint, written = partial_signature(folder)
    named = attempt_of(folder.name)
    assert named is not None
    head = _partial_head(folder)
    found = Found(
        path=folder,
        run_id=folder.parent.name,
        attempt=named[0],
        final=False,
        complete=False,
        fingerprint=fingerprint,
        written=written,
        head=head,
        document=json.dumps(head, default=str),
    )
    for table in RECORD_TABLES:
        rows = _read_stream(folder / f"{table}{STREAM_SUFFIX}", table)
        if rows is not None:
            found.tables[table] = rows
            found.rows += rows.num_rows
    return found


def partial_signature(folder: Path) -> tuple[str, datetime]:
    """(names and sizes of the streams, time of the newest): a partial record that grows changes it."""
    sizes = {}
    newest_ns = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith((STREAM_SUFFIX, ".json")):
                state = entry.stat()
                sizes[entry.name] = state.st_size
                newest_ns = max(newest_ns, state.st_mtime_ns)
    return json.dumps(sizes, sort_keys=True), utc_of(newest_ns)


def _partial_head(folder: Path) -> dict[str, Any]:
    """What a dying head left of the record's head: partial.json, when it is there and whole."""
    try:
        data = json.loads((folder / PARTIAL_FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    if not isinstance(data, dict):
        return {}
    texts = ("site", "tag", "state", "fail_class", "reason", "commit", "image_digest", "data_digest")
    head: dict[str, Any] = {key: data[key] for key in texts if isinstance(data.get(key), str)}
    for key in ("started", "ended"):
        with contextlib.suppress(ValueError, TypeError):
            moment = datetime.fromisoformat(str(data[key]).replace("Z", "+00:00")) if data.get(key) else None
            head[key] = naive_utc(moment)
    return head


def _read_stream(path: Path, table: str) -> pyarrow.Table | None:
    """The whole batches of a stream that may be cut anywhere; None when there are none."""
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
    check_columns(reader.schema, name, table)
    while True:
        try:
            batch = reader.read_next_batch()
            batch.validate(full=True)
        except (StopIteration, pa.ArrowException, OSError):
            return  # the end, or the batch that was being written when the head died
        yield batch
