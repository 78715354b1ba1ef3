"""Windows of steps: each rank's mean per step part in the agent, then statistics over ranks in the head."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from campaign.job.rankfile import StepRecord
from campaign.tables import STEP_PARTS

PARTS = len(STEP_PARTS)
FIRST_PART = 5
"""Index of the first step part in a step record (`campaign.record.STEP`)."""
_DATA_WAIT = STEP_PARTS.index("data_wait_s")
_COMM_EXPOSED = STEP_PARTS.index("comm_exposed_s")


@dataclass(frozen=True, slots=True)
class RankWindow:
    """One rank's means over one window; NaN: the rank didn't measure this part."""

    epoch: int
    window: int
    means: tuple[float, ...]


class _Sums:
    """Sums over steps that leave NaN out."""

    __slots__ = ("counts", "totals")

    def __init__(self) -> None:
        self.totals = [0.0] * PARTS
        self.counts = [0] * PARTS

    def add(self, step: StepRecord) -> None:
        totals, counts = self.totals, self.counts
        for part in range(PARTS):
            value = step[FIRST_PART + part]
            if value == value:  # noqa: PLR0124 (NaN)
                totals[part] += value
                counts[part] += 1

    def means(self) -> tuple[float, ...]:
        return tuple(
            total / count if count else math.nan for total, count in zip(self.totals, self.counts, strict=True)
        )

    def sum_of(self, part: int) -> float | None:
        return self.totals[part] if self.counts[part] else None


class RankSteps:
    """The steps of one rank as they come; windows are numbered within each epoch."""

    def __init__(self, window_steps: int) -> None:
        self._window_steps = max(1, window_steps)
        self._epoch: int | None = None
        self._in_window = 0
        self._window = _Sums()
        self._next_window: dict[int, int] = {}
        self._whole: dict[int, _Sums] = {}
        self.last_step = -1

    def add(self, step: StepRecord) -> list[RankWindow]:
        """The windows that this step completes."""
        epoch = step[1]
        done = [] if epoch == self._epoch else self.close()
        self._epoch = epoch
        self.last_step = step[2]
        self._window.add(step)
        self._whole.setdefault(epoch, _Sums()).add(step)
        self._in_window += 1
        if self._in_window == self._window_steps:
            done += self.close()
        return done

    def close(self) -> list[RankWindow]:
        """The window that is open, however short."""
        if self._in_window == 0 or self._epoch is None:
            return []
        number = self._next_window.get(self._epoch, 0)
        self._next_window[self._epoch] = number + 1
        window = RankWindow(self._epoch, number, self._window.means())
        self._window = _Sums()
        self._in_window = 0
        return [window]

    def epoch_sums(self, epoch: int) -> tuple[float | None, float | None]:
        """(data_wait_s, comm_exposed_s) summed over the epoch's steps so far, which are then forgotten."""
        whole = self._whole.pop(epoch, None)
        if whole is None:
            return None, None
        return whole.sum_of(_DATA_WAIT), whole.sum_of(_COMM_EXPOSED)


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """Of sorted values, by linear interpolation between the two neighbours (NumPy's default method)."""
    place = fraction * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


WindowRow = tuple[int, int, str, str, int, float, int, float, float, float, int]
"""The columns of `windows`: epoch window metric unit n min min_rank median p99 max max_rank."""


class WindowTable:
    """Means of all ranks, gathered until every rank has reported a window or it is one of too many open ones."""

    def __init__(self, ranks: int, max_open: int = 64) -> None:
        self.ranks = ranks
        self.late = 0
        """Windows of single ranks that came after their row had been written."""
        self._max_open = max_open
        self._open: dict[tuple[int, int], dict[int, array[float]]] = {}
        self._written: set[tuple[int, int]] = set()

    def add(self, rank: int, window: RankWindow) -> list[WindowRow]:
        """The rows that are complete now."""
        key = (window.epoch, window.window)
        if key in self._written:
            self.late += 1
            return []
        means = self._open.setdefault(key, {})
        means[rank] = array("d", window.means)
        rows: list[WindowRow] = []
        if len(means) >= self.ranks:
            rows += self._write(key)
        while len(self._open) > self._max_open:
            rows += self._write(min(self._open))
        return rows

    def finish(self) -> list[WindowRow]:
        """The rows of all windows that not every rank has reported."""
        return [row for key in sorted(self._open) for row in self._write(key)]

    def _write(self, key: tuple[int, int]) -> list[WindowRow]:
        self._written.add(key)
        return list(window_rows(key, self._open.pop(key)))


def window_rows(key: tuple[int, int], means: dict[int, array[float]]) -> Iterator[WindowRow]:
    """One row per step part that any rank measured."""
    for part, metric in enumerate(STEP_PARTS):
        values = sorted((mean[part], rank) for rank, mean in means.items() if not math.isnan(mean[part]))
        if not values:
            continue
        ordered = [value for value, _ in values]
        smallest, largest = values[0], values[-1]
        yield (
            *key,
            metric,
            "s",
            len(values),
            smallest[0],
            smallest[1],
            percentile(ordered, 0.5),
            percentile(ordered, 0.99),
            largest[0],
            largest[1],
        )
