"""Reading one record from its folder: what it must look like before the store takes it.

A final record is `a<N>/`: record.json, checked key by key, and the tables that it lists. A partial one is
`a<N>.partial/`: what had been streamed when the head died, read as far as it goes. Nothing is unpickled; a record that
fails a check raises `BadRecord`, with the reason in words.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, ValidationError

from campaign.store.tablefile import (
    PARQUET_SUFFIX,
    STREAM_SUFFIX,
    BadRecord,
    check_digest,
    parquet_rows,
    read_stream,
)
from campaign.tables import RECORD_SCHEMA, RECORD_TABLES

if TYPE_CHECKING:
    import pyarrow

RECORD_FILE = "record.json"
PARTIAL_FILE = "partial.json"
PARTIAL_SUFFIX = ".partial"
LARGEST_INT32 = 2**31 - 1
LARGEST_RECORD_BYTES = 64 << 20
"""A record.json larger than this is not read: node names and clock offsets of 16,384 nodes take 2 MiB."""


Int32 = Annotated[int, Field(ge=-LARGEST_INT32, le=LARGEST_INT32)]
Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class _Strict(BaseModel):
    # keys may be added within a schema version, so unknown ones are kept, not refused
    model_config = ConfigDict(strict=True, extra="allow")


class Exit(_Strict):
    """How the rank that failed first ended."""

    code: Int32 | None
    signal: Int32 | None
    rank: Int32 | None
    node: str | None


class File(_Strict):
    """One file of the record."""

    rows: int | None = None
    bytes: int
    sha256: str


class RecordHead(_Strict):
    """record.json: the keys of contract section 6."""

    schema_: int = Field(alias="schema")
    complete: bool
    missing_nodes: list[str]
    run_id: str
    attempt: Int32
    site: str
    tag: str | None
    state: str
    fail_class: str | None
    reason: str | None
    exit: Exit | None
    started: AwareDatetime | None
    ended: AwareDatetime | None
    world_size: Int32 | None
    nodes: list[str]
    ranks_per_node: Int32 | None
    clock_offsets_s: dict[str, float | None]
    host: dict[str, JsonValue]
    versions: dict[str, JsonValue]
    commit: str | None
    dirty: bool | None
    image_digest: str | None
    data_digest: str | None
    argv: list[str] | None
    env_set: dict[str, str]
    env_kept: dict[str, str] | list[str]
    env_scrubbed: list[str]
    audit: dict[str, JsonValue] | None
    files: dict[str, File]
    bytes_dropped: Int64
    resumed_from: int | str | None


@dataclass
class Found:
    """A record that passed its checks, ready to be taken."""

    path: Path
    run_id: str
    attempt: int
    final: bool
    """From `a<N>/`, which never changes; False for a `.partial` folder."""
    complete: bool
    """Nothing is missing, as the record says; False for a `.partial` folder."""
    fingerprint: str
    """Of a final record: SHA-256 of record.json. Of a partial one: names and sizes of its files."""
    written: datetime
    """UTC: when record.json, or the newest file of a partial record, was last written."""
    head: dict[str, Any]
    """Values of the columns of `data.records`, as far as known."""
    document: str
    """record.json as it is."""
    parquet: dict[str, Path] = field(default_factory=dict)
    """Table name to Parquet file."""
    tables: dict[str, pyarrow.Table] = field(default_factory=dict)
    """Table name to rows, of a partial record."""
    rows: int = 0


def attempt_of(folder_name: str) -> tuple[int, bool] | None:
    """(attempt, final) of a folder name `a<N>` or `a<N>.partial`; None for any other name."""
    name = folder_name.removesuffix(PARTIAL_SUFFIX)
    digits = name[1:]
    if not name.startswith("a") or not digits.isascii() or not digits.isdigit() or len(digits) > 9:
        return None
    return (int(digits), name == folder_name) if digits == str(int(digits)) else None


# -- final records ---------------------------------------------------------------------------------------------------


def read_final(folder: Path) -> Found:
    """Check the record in `folder` (`<run_id>/a<N>`). Raises BadRecord; FileNotFoundError when the folder has gone."""
    text, written = _record_text(folder)
    head, document = _parse_head(text)
    _check_identity(folder, head.run_id, head.attempt)
    found = Found(
        path=folder,
        run_id=head.run_id,
        attempt=head.attempt,
        final=True,
        complete=head.complete,
        fingerprint=hashlib.sha256(text).hexdigest(),
        written=written,
        head=_columns(head),
        document=document,
    )
    _take_tables(found, head.files)
    return found


def _record_text(folder: Path) -> tuple[bytes, datetime]:
    try:
        with (folder / RECORD_FILE).open("rb") as file:
            state = os.fstat(file.fileno())
            if state.st_size > LARGEST_RECORD_BYTES:
                raise BadRecord(f"{RECORD_FILE} has {state.st_size} bytes")
            return file.read(), _utc(state.st_mtime_ns)
    except FileNotFoundError:
        if not folder.is_dir():
            raise
        raise BadRecord(f"there is no {RECORD_FILE}") from None
    except OSError as error:
        raise BadRecord(f"{RECORD_FILE} can't be read: {error.strerror}") from error


def _parse_head(text: bytes) -> tuple[RecordHead, str]:
    """record.json, checked, and as JSON without NaN (which JSON doesn't have; NULL means not measured)."""
    try:
        data = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"{RECORD_FILE} is not JSON (cut or damaged): {error}") from error
    if not isinstance(data, dict):
        raise BadRecord(f"{RECORD_FILE} is not a JSON object")
    _check_schema(data)
    document = json.dumps(data)
    try:
        return RecordHead.model_validate_json(document), document
    except ValidationError as error:
        raise BadRecord(f"{RECORD_FILE}: {_first_problems(error)}") from error


def _check_schema(data: dict[str, Any]) -> None:
    schema = data.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise BadRecord(f"{RECORD_FILE}: schema is {schema!r}, not a number from 1")
    if schema > RECORD_SCHEMA:
        raise BadRecord(f"the record has schema {schema}, this campaign knows {RECORD_SCHEMA}: pip install -U campaign")


def _first_problems(error: ValidationError) -> str:
    problems = [
        f"{'.'.join(str(part) for part in problem['loc']) or RECORD_FILE}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_input=False)
    ]
    more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
    return "; ".join(problems[:3]) + more


def _check_identity(folder: Path, run_id: str, attempt: int) -> None:
    expected = (folder.parent.name, attempt_of(folder.name))
    if expected[0] != run_id or expected[1] is None or expected[1][0] != attempt:
        raise BadRecord(
            f"the record is of run {run_id}, attempt {attempt}, but lies in {folder.parent.name}/{folder.name}"
        )


def _columns(head: RecordHead) -> dict[str, Any]:
    """The typed columns of `data.records` that record.json gives."""
    leaving = head.exit or Exit(code=None, signal=None, rank=None, node=None)
    extra = head.model_extra or {}
    seen = head.host.get("oversubscribed")
    packed = extra.get("packed")
    return {
        "missing_nodes": head.missing_nodes,
        "site": head.site,
        "tag": head.tag,
        "state": head.state,
        "fail_class": head.fail_class,
        "reason": head.reason,
        "exit_code": leaving.code,
        "exit_signal": leaving.signal,
        "exit_rank": leaving.rank,
        "exit_node": leaving.node,
        "started": _naive(head.started),
        "ended": _naive(head.ended),
        "world_size": head.world_size,
        "nodes": head.nodes,
        "ranks_per_node": head.ranks_per_node,
        "host": _json(head.host),
        "versions": _json(head.versions),
        "commit": head.commit,
        "dirty": head.dirty,
        "image_digest": head.image_digest,
        "data_digest": head.data_digest,
        "audit": None if head.audit is None else _json(head.audit),
        "oversubscribed": seen if isinstance(seen, bool) else None,
        "packed": packed if isinstance(packed, str) else None,
        "bytes_dropped": head.bytes_dropped,
        "resumed_from": None if head.resumed_from is None else str(head.resumed_from),
    }


def _take_tables(found: Found, files: dict[str, File]) -> None:
    """Check the tables that record.json lists. One that couldn't become Parquet (a full disk) is still a stream."""
    for table in RECORD_TABLES:
        for suffix in (PARQUET_SUFFIX, STREAM_SUFFIX):
            entry = files.get(f"{table}{suffix}")
            if entry is not None:
                _take_table(found, table, found.path / f"{table}{suffix}", entry)


def _take_table(found: Found, table: str, path: Path, entry: File) -> None:
    try:
        with path.open("rb") as opened:
            check_digest(opened, path.name, entry.bytes, entry.sha256)
            if path.suffix == PARQUET_SUFFIX:
                rows = parquet_rows(opened, path.name, table)
                found.parquet[table] = path
            else:
                stream = read_stream(path, table)
                rows = 0 if stream is None else stream.num_rows
                if stream is not None:
                    found.tables[table] = stream
    except FileNotFoundError:
        raise BadRecord(f"{path.name} is missing") from None
    except OSError as error:
        raise BadRecord(f"{path.name} can't be read: {error.strerror or error}") from error
    if entry.rows is not None and entry.rows != rows:
        raise BadRecord(f"{path.name} has {rows} rows, {RECORD_FILE} says {entry.rows}")
    found.rows += rows


# -- partial records -------------------------------------------------------------------------------------------------


def read_partial(folder: Path) -> Found:
    """Read `<run_id>/a<N>.partial` as far as it goes. Raises BadRecord; FileNotFoundError when it has gone.

    When its record.json is whole, only the renaming of the folder is missing: then it is a final record.
    """
    if (folder / RECORD_FILE).exists():
        with contextlib.suppress(BadRecord):
            return read_final(folder)
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
        _take_partial_table(found, table)
    return found


def _take_partial_table(found: Found, table: str) -> None:
    """The stream, or the Parquet file that a head was making of it when it died: the stream goes when that is whole."""
    rows = read_stream(found.path / f"{table}{STREAM_SUFFIX}", table)
    if rows is not None:
        found.tables[table] = rows
        found.rows += rows.num_rows
        return
    path = found.path / f"{table}{PARQUET_SUFFIX}"
    with contextlib.suppress(FileNotFoundError), path.open("rb") as opened:
        found.rows += parquet_rows(opened, path.name, table)
        found.parquet[table] = path


def partial_signature(folder: Path) -> tuple[str, datetime]:
    """(names and sizes of its files, time of the newest): a partial record that grows changes it."""
    sizes = {}
    newest_ns = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith((STREAM_SUFFIX, PARQUET_SUFFIX, ".json")):
                state = entry.stat()
                sizes[entry.name] = state.st_size
                newest_ns = max(newest_ns, state.st_mtime_ns)
    return json.dumps(sizes, sort_keys=True), _utc(newest_ns)


def _partial_head(folder: Path) -> dict[str, Any]:
    """What partial.json, written when the run began, says; nothing when it isn't there or not whole."""
    try:
        data = json.loads((folder / PARTIAL_FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    if not isinstance(data, dict):
        return {}
    texts = ("site", "tag", "commit", "image_digest", "data_digest")
    head: dict[str, Any] = {key: data[key] for key in texts if isinstance(data.get(key), str)}
    if isinstance(data.get("dirty"), bool):
        head["dirty"] = data["dirty"]
    if isinstance(data.get("ranks_per_node"), int):
        head["ranks_per_node"] = data["ranks_per_node"]
    with contextlib.suppress(KeyError, TypeError, ValueError):
        head["started"] = _naive(datetime.fromisoformat(data["started"].replace("Z", "+00:00")))
    return head


# -- small things ----------------------------------------------------------------------------------------------------


def _utc(mtime_ns: int) -> datetime:
    return datetime.fromtimestamp(mtime_ns / 1e9, UTC).replace(tzinfo=None)


def _naive(moment: datetime | None) -> datetime | None:
    """UTC without a time zone, as DuckDB's TIMESTAMP columns hold it."""
    if moment is None or moment.tzinfo is None:
        return moment
    return moment.astimezone(UTC).replace(tzinfo=None)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
