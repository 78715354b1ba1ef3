"""The record on shared storage: a partial folder while the run lasts, the final one by rename at its end.

A full disk doesn't lose the record: what can't be written is counted, a small reserve file is given up, and then at
least `record.json` fits. A table that can't be turned into Parquet stays the Arrow stream that it is; `record.json`
then says complete=false and lists the stream.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from campaign.job.console import Console
from campaign.job.files import create, make_folder, sync, write_all, write_synced
from campaign.job.recordtable import RecordTable
from campaign.tables import RECORD_TABLES

RESERVE_BYTES = 128 << 10
RESERVE_FILE = ".reserve"
PARTIAL_FILE = "partial.json"
"""What is known of the run at its start: all that `collect` has to go by when the head dies."""
FAILED_BYTES = 1 << 20
REFUSED_BYTES = 64
"""A row that didn't fit the schema, as it is counted in bytes_dropped."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class RecordWriter:
    """Writes the record of one attempt. Only its constructor raises; afterwards troubles are in `trouble`."""

    def __init__(
        self,
        run_dir: Path,
        attempt: int,
        begun: dict[str, Any],
        *,
        group_readable: bool,
        log: Callable[[str], None],
    ) -> None:
        """Make the partial folder; `begun` goes into partial.json. Raises OSError when the folder can't be made."""
        self.folder = run_dir / f"a{attempt}.partial"
        self.final = run_dir / f"a{attempt}"
        self.trouble: OSError | None = None
        """The first error that lost data."""
        self.bytes_dropped = 0
        self._log = log
        self._group_readable = group_readable
        make_folder(self.folder, group_readable=group_readable)
        self.tables = {name: RecordTable(name, self.folder, group_readable=group_readable) for name in RECORD_TABLES}
        self.console = Console(self.folder / "console.log", group_readable=group_readable)
        self._reserve()
        self._try(self._write_json, PARTIAL_FILE, begun)

    def flush(self) -> None:
        """Bring the partial folder up to date."""
        for table in self.tables.values():
            dropped, error = table.flush()
            if error is not None:
                self._lost(dropped, error)

    def add_console(self, start: bytes, skipped: int, rest: bytes) -> None:
        """More of rank 0's output."""
        try:
            self.console.add(start, skipped, rest)
        except OSError as error:
            self._lost(0, error)

    def finish(self, record: dict[str, Any], failed_log: bytes = b"") -> tuple[Path, dict[str, Any]]:
        """Write the final files and rename the folder; where the record is now, and what it says.

        `record` has the keys of record.json except files. What could not be written shows in complete and
        bytes_dropped, and a run that is done otherwise has failed: its measurements aren't all there.
        """
        self.flush()
        for name in (RESERVE_FILE, PARTIAL_FILE):
            with contextlib.suppress(OSError):
                (self.folder / name).unlink()
        if self.console:
            self._try(self.console.rewrite)
        if failed_log:
            self._try(self._write_failed, failed_log[:FAILED_BYTES])
        written = [table for table in self.tables.values() if table.rows]
        for table in sorted(written, key=lambda table: table.rows):
            self._try(table.to_parquet)
        refused = sum(table.refused for table in self.tables.values())
        if refused:
            self._log(f"{refused} rows held values that the record has no room for; they were left out")
        record = record | {
            "complete": bool(record["complete"]) and self.trouble is None,
            "bytes_dropped": record["bytes_dropped"] + self.bytes_dropped + refused * REFUSED_BYTES,
            "files": {path.name: self._describe(path) for path in sorted(self._files())},
        }
        if self.trouble is not None and record["state"] == "done":
            record |= {"state": "failed", "reason": f"the record is not complete: {self.trouble}"}
            record["fail_class"] = "quota" if self.trouble.errno in FULL else "unknown"
        return (self._publish() if self._write_record(record) else self.folder), record

    def _publish(self) -> Path:
        try:
            sync(self.folder)
            self.folder.rename(self.final)
            sync(self.final.parent)
        except OSError as error:
            self._log(f"{self.folder}: could not be renamed to {self.final.name}: {error}")
            return self.folder
        return self.final

    def _write_record(self, record: dict[str, Any]) -> bool:
        path = self.folder / "record.json"
        for give_up in (None, "failed.log", "console.log"):
            if give_up is not None:
                with contextlib.suppress(OSError):
                    (self.folder / give_up).unlink()
                record["files"].pop(give_up, None)
            try:
                self._write_json(path.name, record)
            except OSError as error:
                self._lost(0, error)
            else:
                return True
        self._log(f"{path}: could not be written: {self.trouble}")
        return False

    def _write_json(self, name: str, data: dict[str, Any]) -> None:
        text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
        write_synced(self.folder / name, text + b"\n", group_readable=self._group_readable)

    def _write_failed(self, text: bytes) -> None:
        write_synced(self.folder / "failed.log", text, group_readable=self._group_readable)

    def _try(self, action: Callable[..., None], *args: Any) -> bool:
        try:
            action(*args)
        except OSError as error:
            self._lost(0, error)
            return False
        return True

    def _lost(self, dropped: int, error: OSError) -> None:
        self.bytes_dropped += dropped
        if self.trouble is None:
            self.trouble = error
            self._log(f"{self.folder}: data can't be written any more: {error}")

    def _files(self) -> list[Path]:
        return [path for path in self.folder.iterdir() if path.suffix in (".parquet", ".arrows", ".log")]

    def _describe(self, path: Path) -> dict[str, Any]:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        rows = None if path.suffix == ".log" else self.tables[path.stem].rows
        return {"rows": rows, "bytes": path.stat().st_size, "sha256": digest}

    def _reserve(self) -> None:
        """Real bytes, not a hole: they are what `record.json` needs on a full disk."""
        path = self.folder / RESERVE_FILE
        try:
            fd = create(path, group_readable=False)
            try:
                write_all(fd, os.urandom(RESERVE_BYTES))
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            self._lost(0, error)
