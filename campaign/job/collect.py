"""What an agent gathers from its ranks and hands to the head in one message: windows, raw steps, epochs, events."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from campaign.job.frames import Message, to_text
from campaign.job.metricsource import JsonLines, LineMatcher, Value, jsonl_paths, patterns
from campaign.job.rankfile import RankFile, Record, StepRecord
from campaign.job.spec import RunSpec
from campaign.job.windows import RankSteps
from campaign.record import BUFFER_BYTES, STEP

MAX_OBSERVATIONS = 200_000
"""Of one node in one run: a loop that observes every microsecond must not fill the head's memory."""
LOOK_BYTES = 4 << 20
MIN_SHARE_BYTES = 2 * BUFFER_BYTES
"""Read of all rank files, and at least of each, in one look: so much fits into a message, and takes no second."""


OBSERVATION_BYTES = 64
"""One observation too many, as it is counted."""


class RankFiles:
    """Follows every `<rank>.bin` in a folder, those of ranks that a launcher within the rank has started too."""

    def __init__(self, folder: Path, ranks: range) -> None:
        self._folder = folder
        self.files = {rank: RankFile.create(folder / f"{rank}.bin", rank) for rank in ranks}

    def look_for_more(self) -> None:
        """Open files that have appeared."""
        for path in self._folder.glob("*.bin"):
            if path.stem.isdigit() and int(path.stem) not in self.files:
                with contextlib.suppress(OSError):
                    self.files[int(path.stem)] = RankFile(path, int(path.stem))

    @property
    def bytes_dropped(self) -> int:
        """Bytes of records that could not be written or read."""
        return sum(file.bytes_dropped for file in self.files.values())


class Collector:
    """Reads all sources of one node; `message` is what the head has not been told yet."""

    def __init__(self, spec: RunSpec, folder: Path, ranks: range, metrics_files: dict[int, Path]) -> None:
        self._files = RankFiles(folder, ranks)
        self._window_steps = int(spec.record.get("window_steps") or 50)
        self._raw = frozenset(spec.record.get("raw_ranks", [0]))
        self._steps: dict[int, RankSteps] = {}
        self._matcher = LineMatcher(patterns(spec.metrics) if 0 in ranks else [])
        self._json_lines = [(rank, JsonLines(path)) for rank, path in metrics_files.items()]
        if 0 in ranks:
            self._json_lines += [
                (0, JsonLines(path, from_end=True)) for path in jsonl_paths(spec.metrics, Path(spec.project_dir))
            ]
        self._phases_seen: dict[int, set[str]] = {}
        self._observations = 0
        self._dropped = 0
        self._progress = 0
        self._clear()

    def _clear(self) -> None:
        self._windows: list[list[Any]] = []
        self._raw_steps: dict[int, bytearray] = {}
        self._epochs: list[list[Any]] = []
        self._events: list[list[Any]] = []
        self._worlds: list[dict[str, Any]] = []

    def output(self, data: bytes, now_ns: int) -> None:
        """More of rank 0's output."""
        self._values(0, self._matcher.feed(data), now_ns)

    def look(self, now_ns: int) -> bool:
        """Read a share of what has come, the same of every rank; True when there was anything."""
        self._files.look_for_more()
        before = self._progress
        share = max(MIN_SHARE_BYTES, LOOK_BYTES // len(self._files.files))
        for rank, file in self._files.files.items():
            records = file.read(share)
            if records:
                self._records(rank, records)
        for rank, lines in self._json_lines:
            self._values(rank, lines.read(), now_ns)
        return self._progress != before

    def close(self, now_ns: int) -> None:
        """Take what is left when the ranks have ended and `look` finds no more: lines and windows without an end."""
        for rank, lines in self._json_lines:
            self._values(rank, lines.read(final=True), now_ns)
        self._values(0, self._matcher.end(), now_ns)
        for rank, steps in self._steps.items():
            self._add_windows(rank, steps.close())

    @property
    def bytes_dropped(self) -> int:
        """Bytes of records that were lost on this node."""
        return self._dropped + self._files.bytes_dropped

    def last_steps(self) -> dict[str, int]:
        """The last step of each rank that reported any."""
        return {str(rank): steps.last_step for rank, steps in self._steps.items()}

    def message(self, offset_ns: int) -> Message | None:
        """All that is new; None when nothing is. `offset_ns` turns this node's times into the head's."""
        if not (self._windows or any(self._raw_steps.values()) or self._epochs or self._events or self._worlds):
            return None
        message: Message = {
            "k": "data",
            "offset_ns": offset_ns,
            "windows": self._windows,
            "steps": {str(rank): to_text(data) for rank, data in self._raw_steps.items() if data},
            "epochs": self._epochs,
            "events": self._events,
            "worlds": self._worlds,
        }
        self._clear()
        return message

    def _records(self, rank: int, records: list[Record]) -> None:
        self._progress += 1
        raw = self._raw_steps.setdefault(rank, bytearray()) if rank in self._raw else None
        for record in records:
            if isinstance(record, dict):
                self._other(rank, record)
                continue
            steps = self._steps.get(rank) or self._first_step(rank, record)
            windows = steps.add(record)
            if windows:
                self._add_windows(rank, windows)
            if raw is not None:
                raw += STEP.pack(*record)

    def _first_step(self, rank: int, step: StepRecord) -> RankSteps:
        """Begin with a rank's steps; note first_batch and first_step of a workload that hasn't done so itself."""
        _, _, _, t_ns, _, data_wait_s, *_, step_s, _ = step
        if step_s == step_s and data_wait_s == data_wait_s:  # noqa: PLR0124 (NaN)
            self._phase(rank, {"name": "first_batch", "t": t_ns - int((step_s - data_wait_s) * 1e9)})
        self._phase(rank, {"name": "first_step", "t": t_ns})
        self._steps[rank] = RankSteps(self._window_steps)
        return self._steps[rank]

    def _phase(self, rank: int, record: dict[str, Any]) -> None:
        """A phase is reached once; what comes again is of a worker or a second start."""
        seen = self._phases_seen.setdefault(rank, set())
        if record["name"] not in seen:
            seen.add(record["name"])
            self._events.append(["phase", record["name"], rank, record["t"], None, None, None, None])

    def _other(self, rank: int, record: dict[str, Any]) -> None:
        kind = record.pop("k", None)
        if kind == "phase":
            self._phase(rank, record)
        elif kind == "epoch":
            steps = self._steps.get(rank)
            epoch = record["epoch"]
            if steps is not None:
                self._add_windows(rank, steps.close())
                record["data_wait_s"], record["comm_exposed_s"] = steps.epoch_sums(epoch)
            record.pop("t", None)
            self._epochs.append([rank, epoch, record])
        elif kind == "observe":
            self._observe(
                rank,
                record["t"],
                Value(record["name"], record["value"], record["unit"], record.get("step"), record.get("labels") or {}),
            )
        elif kind == "world":
            self._worlds.append(record)

    def _values(self, rank: int, values: list[Value], now_ns: int) -> None:
        for value in values:
            self._progress += 1
            self._observe(rank, now_ns, value)

    def _observe(self, rank: int, t_ns: int, value: Value) -> None:
        self._observations += 1
        if self._observations > MAX_OBSERVATIONS:
            self._dropped += OBSERVATION_BYTES
            return
        self._events.append(
            ["observe", value.name, rank, t_ns, value.value, value.unit, value.labels or None, value.step]
        )

    def _add_windows(self, rank: int, windows: list[Any]) -> None:
        for window in windows:
            means = [None if mean != mean else float(f"{mean:.9g}") for mean in window.means]  # noqa: PLR0124
            self._windows.append([rank, window.epoch, window.window, means])
