"""One row per epoch over all ranks, from what each rank reports (contract section 5, `epochs`)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

COLUMNS = (
    "epoch_time_s",
    "steps",
    "samples_seen",
    "samples_unique",
    "loss",
    "val_loss",
    "data_wait_s",
    "comm_exposed_s",
)
"""Measured columns that a program without the Recorder may report by name, with the epoch as step."""
LATE_S = 30.0
"""An epoch that not all ranks have reported is written when a later one exists and nothing has come for so long."""

Report = dict[str, Any]


def combine(epoch: int, reports: Mapping[int, Report]) -> dict[str, Any]:
    """The row of one epoch from the reports of its ranks.

    Time is that of the slowest rank, and its data wait and exposed communication are those shown, so that they are
    parts of that time. Samples are summed, losses averaged; samples_unique counts over all ranks already.
    """
    times = {rank: report["epoch_time_s"] for rank, report in reports.items() if _given(report, "epoch_time_s")}
    slowest = max(times, key=lambda rank: (times[rank], -rank), default=None)
    parts = reports[slowest] if slowest is not None else reports[min(reports)]
    seen = _sum(reports.values(), "samples_seen")
    unique = max(_all(reports.values(), "samples_unique"), default=None)
    hashes = [reports[rank]["order_hash"] for rank in sorted(reports) if reports[rank].get("order_hash")]
    return {
        "epoch": epoch,
        "warmup": any(report.get("warmup") for report in reports.values()),
        "epoch_time_s": times[slowest] if slowest is not None else None,
        "epoch_time_min_s": min(times.values(), default=None),
        "slowest_rank": slowest,
        "steps": _int(max(_all(reports.values(), "steps"), default=None)),
        "samples_seen": _int(seen),
        "samples_unique": _int(unique),
        "duplication": seen / unique if seen is not None and unique else None,
        "order_hash": hashes[0] if hashes else None,
        "loss": _mean(reports.values(), "loss"),
        "val_loss": _mean(reports.values(), "val_loss"),
        "data_wait_s": parts.get("data_wait_s"),
        "comm_exposed_s": parts.get("comm_exposed_s"),
        "energy_wh": None,
        "energy_scope": None,
    }


@dataclass(slots=True)
class _Open:
    reports: dict[int, Report] = field(default_factory=dict)
    whole: set[int] = field(default_factory=set)
    """Ranks whose Recorder has closed the epoch."""
    touched: float = 0.0


class EpochTable:
    """Reports gathered until every rank has closed an epoch, or it is late."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.late = 0
        self._open: dict[int, _Open] = {}
        self._written: set[int] = set()

    def add(self, rank: int, epoch: int, report: Report, *, whole: bool) -> list[dict[str, Any]]:
        """A rank's report of an epoch; `whole`: all of it, else single columns. Returns the rows that are complete."""
        if epoch in self._written:
            self.late += 1
            return []
        entry = self._open.setdefault(epoch, _Open())
        entry.reports.setdefault(rank, {}).update(report)
        entry.touched = time.monotonic()
        if whole:
            entry.whole.add(rank)
        return self._write(epoch) if len(entry.whole) >= self.ranks else []

    def due(self) -> list[dict[str, Any]]:
        """Rows of epochs that are late."""
        if len(self._open) < 2:
            return []
        newest, now = max(self._open), time.monotonic()
        late = [epoch for epoch, entry in self._open.items() if epoch < newest and now - entry.touched > LATE_S]
        return [row for epoch in sorted(late) for row in self._write(epoch)]

    def finish(self) -> list[dict[str, Any]]:
        """Rows of all epochs that are left."""
        return [row for epoch in sorted(self._open) for row in self._write(epoch)]

    def _write(self, epoch: int) -> list[dict[str, Any]]:
        self._written.add(epoch)
        return [combine(epoch, self._open.pop(epoch).reports)]


def _given(report: Report, key: str) -> bool:
    return report.get(key) is not None


def _all(reports: Iterable[Report], key: str) -> list[Any]:
    return [report[key] for report in reports if _given(report, key)]


def _sum(reports: Iterable[Report], key: str) -> Any:
    values = _all(reports, key)
    return sum(values) if values else None


def _mean(reports: Iterable[Report], key: str) -> float | None:
    values = _all(reports, key)
    return float(sum(values) / len(values)) if values else None


def _int(value: Any) -> int | None:
    return None if value is None else int(value)
