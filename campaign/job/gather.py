"""What the agents send becomes rows of the record, and the summary that `record.json` needs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from campaign.job.clock import JobClock
from campaign.job.epochs import COLUMNS, EpochTable
from campaign.job.frames import Message, to_bytes
from campaign.job.windows import RankWindow, WindowTable
from campaign.job.writer import RecordWriter
from campaign.record import STEP
from campaign.tables import EPOCHS

LATE_BYTES = 64
EPOCH_COLUMNS = tuple(column.name for column in EPOCHS)


class Gather:
    """One attempt's data on their way from the agents to the writer."""

    def __init__(self, writer: RecordWriter, clock: JobClock, ranks: int) -> None:
        self._writer = writer
        self._clock = clock
        self._windows = WindowTable(ranks)
        self._epochs = EpochTable(ranks)
        self.ranks = ranks
        self.worlds: dict[int, int] = {}
        """World size as each rank's process group reports it."""
        self.observed: set[str] = set()
        """Names of what was observed."""
        self.versions: dict[str, str] = {}
        self._audit: dict[str, Any] = {}
        self._order_hashes: list[str] = []

    def phase(self, name: str, node: str, t_us: int | None = None) -> None:
        """A phase that the head or an agent has reached."""
        self._event("phase", name, None, node, self._clock.t_us() if t_us is None else t_us)

    def data(self, node: str, message: Message) -> None:
        """An agent's `data`."""
        offset_ns = int(message.get("offset_ns", 0))
        for world in message.get("worlds", ()):
            self._world(world)
        for rank, text in message.get("steps", {}).items():
            self._steps(int(rank), to_bytes(text), offset_ns)
        for rank, epoch, window, means in message.get("windows", ()):
            values = tuple(math.nan if mean is None else mean for mean in means)
            self._window_rows(self._windows.add(rank, RankWindow(epoch, window, values)))
        for kind, name, rank, t_ns, value, unit, labels, step in message.get("events", ()):
            self._event(kind, name, rank, node, self._clock.t_us(t_ns + offset_ns), value, unit, labels, step)
            if kind == "observe":
                self.observed.add(name)
            if kind == "observe" and step is not None and name in COLUMNS and not labels:
                self._epoch_rows(self._epochs.add(rank, step, {name: value}, whole=False))
        for rank, epoch, report in message.get("epochs", ()):
            self._epoch_rows(self._epochs.add(rank, epoch, report, whole=True))
        self._epoch_rows(self._epochs.due())

    def finish(self) -> None:
        """Rows of what never became complete."""
        self._window_rows(self._windows.finish())
        self._epoch_rows(self._epochs.finish())

    @property
    def world_size(self) -> int | None:
        """As the process group reports it; the smallest when ranks disagree; None when nobody reported."""
        return min(self.worlds.values(), default=None)

    @property
    def bytes_dropped(self) -> int:
        """What came after its row had been written, at LATE_BYTES each."""
        return (self._windows.late + self._epochs.late) * LATE_BYTES

    @property
    def audit(self) -> dict[str, Any] | None:
        """{samples, unique, duplication, order_hashes} of the last epoch that counted unique samples."""
        return self._audit | {"order_hashes": self._order_hashes} if self._audit or self._order_hashes else None

    def _world(self, world: dict[str, Any]) -> None:
        self.worlds[world["rank"]] = world["world_size"]
        self.versions |= world.get("versions") or {}
        # a launcher within the rank may have started more ranks than we did
        self.ranks = self._windows.ranks = self._epochs.ranks = max(self.ranks, world["world_size"])

    def _steps(self, rank: int, data: bytes, offset_ns: int) -> None:
        table = self._writer.tables["steps"]
        for _, epoch, step, t_ns, samples, *parts in STEP.iter_unpack(data):
            t_s = (t_ns + offset_ns - self._clock.start_ns) / 1e9
            values = [None if value != value else value for value in parts]  # noqa: PLR0124 (NaN)
            table.append((rank, step, epoch, t_s, *values[:7], samples, values[7]))

    def _window_rows(self, rows: Iterable[tuple[Any, ...]]) -> None:
        for row in rows:
            self._writer.tables["windows"].append(row)

    def _epoch_rows(self, rows: Iterable[dict[str, Any]]) -> None:
        for row in rows:
            self._writer.tables["epochs"].append([row[name] for name in EPOCH_COLUMNS])
            if row["samples_unique"] is not None:
                self._audit = {
                    "samples": row["samples_seen"],
                    "unique": row["samples_unique"],
                    "duplication": row["duplication"],
                }
            if row["order_hash"] is not None:
                self._order_hashes.append(row["order_hash"])

    def _event(
        self,
        kind: str,
        name: str,
        rank: int | None,
        node: str,
        t_us: int,
        value: float | None = None,
        unit: str | None = None,
        labels: dict[str, str] | None = None,
        step: int | None = None,
    ) -> None:
        pairs = None if labels is None else list(labels.items())
        self._writer.tables["events"].append((kind, name, rank, node, t_us, value, unit, pairs, step))
