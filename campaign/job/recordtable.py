"""One table of the record: rows wait in memory, go to an Arrow stream every few seconds, and end as Parquet."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaign.job.files import create, sync, write_all
from campaign.tables import RECORD_TABLES, record_schema

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP = 1 << 17


class RecordTable:
    """A table in the partial folder. The stream is readable at every moment, also when it is cut anywhere.

    PyArrow is imported when the first rows are written, while the ranks start: they never wait for it.
    """

    def __init__(self, name: str, folder: Path, *, group_readable: bool) -> None:
        self.name = name
        self.stream_path = folder / f"{name}.arrows"
        self.parquet_path = folder / f"{name}.parquet"
        self.rows = 0
        """Rows in the stream."""
        self.refused = 0
        """Rows that didn't fit the schema and were left out."""
        self._group_readable = group_readable
        self._columns: list[list[Any]] = [[] for _ in RECORD_TABLES[name]]
        self._fd = -1
        self._size = 0

    @functools.cached_property
    def schema(self) -> pa.Schema:
        """The fixed Arrow schema."""
        return record_schema(self.name)

    def append(self, row: Sequence[Any]) -> None:
        """One row, in the table's column order."""
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)

    @property
    def waiting(self) -> int:
        """Rows that aren't in the stream yet."""
        return len(self._columns[0])

    def flush(self) -> tuple[int, OSError | None]:
        """Move the waiting rows to the stream: (bytes dropped, why). What can't be written whole is taken back."""
        if not self.waiting:
            return 0, None
        import pyarrow as pa

        columns, self._columns = self._columns, [[] for _ in self._columns]
        try:
            batch = self._batch(columns)
        except (pa.ArrowException, OverflowError, TypeError):
            columns = self._fitting(columns)
            batch = self._batch(columns)
        try:
            if self._fd < 0:
                self._fd = create(self.stream_path, group_readable=self._group_readable)
                self._put(self.schema.serialize())
            self._put(batch.serialize())
        except OSError as error:
            self._take_back()
            return int(batch.nbytes), error
        self.rows += batch.num_rows
        return 0, None

    def _batch(self, columns: list[list[Any]]) -> pa.RecordBatch:
        import pyarrow as pa

        arrays = [pa.array(column, field.type) for column, field in zip(columns, self.schema, strict=True)]
        return pa.record_batch(arrays, schema=self.schema)

    def _fitting(self, columns: list[list[Any]]) -> list[list[Any]]:
        """The rows whose values fit the schema: a program may report an epoch of 10^12. The others are counted."""
        import pyarrow as pa

        rows = []
        for row in zip(*columns, strict=True):
            try:
                self._batch([[value] for value in row])
            except (pa.ArrowException, OverflowError, TypeError):
                self.refused += 1
            else:
                rows.append(row)
        return [[row[place] for row in rows] for place in range(len(columns))]

    def to_parquet(self) -> None:
        """Turn the stream into Parquet (zstd, fixed schema) and remove it.

        On OSError the stream stays and no Parquet file is left.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        try:
            os.close(create(self.parquet_path, group_readable=self._group_readable))
            with (
                pa.OSFile(str(self.stream_path), "rb") as source,
                pa.ipc.open_stream(source) as reader,
                pq.ParquetWriter(str(self.parquet_path), self.schema, compression="zstd") as writer,
            ):
                for table in _row_groups(reader):
                    writer.write_table(table, row_group_size=ROW_GROUP)
            sync(self.parquet_path)
        except OSError:
            with contextlib.suppress(OSError):
                self.parquet_path.unlink()
            raise
        self.stream_path.unlink()

    def _put(self, message: pa.Buffer) -> None:
        write_all(self._fd, memoryview(message))
        self._size += message.size

    def _take_back(self) -> None:
        if self._fd < 0:
            return
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, self._size)
            os.lseek(self._fd, self._size, os.SEEK_SET)
        if self._size == 0:
            # not even the schema fits: no file rather than an empty one
            os.close(self._fd)
            self._fd = -1
            with contextlib.suppress(OSError):
                self.stream_path.unlink()


def _row_groups(reader: Any) -> Iterator[pa.Table]:
    """The stream's small batches as tables of at least ROW_GROUP rows, the last one less: bounded memory."""
    import pyarrow as pa

    batches: list[Any] = []
    rows = 0
    for batch in reader:
        batches.append(batch)
        rows += batch.num_rows
        if rows >= ROW_GROUP:
            yield pa.Table.from_batches(batches)
            batches, rows = [], 0
    if batches:
        yield pa.Table.from_batches(batches)
