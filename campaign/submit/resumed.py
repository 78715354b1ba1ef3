"""Did an attempt go on from an earlier one? Seen from the epochs that the attempts of a run recorded.

A program with checkpoints of its own resumes without telling. Which epoch a program counts from says nothing: some
begin with 0, others with 1. The view `data.last_records` has the same rule (campaign/store/schema/views.sql).
"""

from __future__ import annotations

from pathlib import Path


def went_on(run_dir: Path, attempt: int) -> bool:
    """True when an earlier attempt recorded an epoch before the first one of this attempt."""
    if attempt < 2:
        return False
    first = min(epochs_of(run_dir, attempt), default=None)
    if first is None:
        return False
    earlier = (min(epochs_of(run_dir, number), default=None) for number in range(1, attempt))
    return any(epoch is not None and epoch < first for epoch in earlier)


def epochs_of(run_dir: Path, attempt: int) -> set[int]:
    """Epochs in an attempt's record, final or partial; empty when it has none or none that can be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from campaign.store.recordfile import PARTIAL_SUFFIX
    from campaign.store.tablefile import PARQUET_SUFFIX, STREAM_SUFFIX, BadRecord, read_stream

    for folder in (run_dir / f"a{attempt}", run_dir / f"a{attempt}{PARTIAL_SUFFIX}"):
        try:
            path = folder / f"epochs{PARQUET_SUFFIX}"
            epochs = pq.read_table(path) if path.exists() else read_stream(folder / f"epochs{STREAM_SUFFIX}", "epochs")
        except (pa.ArrowException, OSError, BadRecord):
            continue  # damaged: `campaign collect` sets the record aside and says why
        if epochs is not None and "epoch" in epochs.column_names:
            return {int(epoch) for epoch in epochs.column("epoch").to_pylist() if epoch is not None}
    return set()
