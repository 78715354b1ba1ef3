"""Times of a job: since when it runs, and how far the clocks of its nodes are apart."""

from __future__ import annotations

import os
import time
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True, slots=True)
class JobClock:
    """Zero of a run's times (`job_start`), on this machine's monotonic clock and as wall time."""

    start_ns: int
    """CLOCK_MONOTONIC."""
    started: float
    """Seconds since the epoch, UTC."""

    @classmethod
    def now(cls) -> JobClock:
        """A clock that starts now."""
        return cls(time.monotonic_ns(), time.time())

    @classmethod
    def of_process(cls) -> JobClock:
        """A clock that started with this process.

        Under Slurm the head replaces the batch shell (`exec`), so this is the start of the batch script: module loads
        before the head count. $SLURM_JOB_START_TIME (Slurm 23.02 and later) would be the controller's clock.
        """
        ticks = process_start_ticks(os.getpid())
        if ticks is None:
            return cls.now()
        age_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        return cls(time.monotonic_ns() - age_ns, time.time() - age_ns / 1e9)

    def t_us(self, monotonic_ns: int | None = None) -> int:
        """Microseconds since job_start."""
        return ((time.monotonic_ns() if monotonic_ns is None else monotonic_ns) - self.start_ns) // 1000

    def elapsed_s(self) -> float:
        """Seconds since job_start."""
        return (time.monotonic_ns() - self.start_ns) / 1e9


def process_start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot (field 22 of /proc/PID/stat); None when there is none.

    With the pid it names a process for good: pids are used again, this pair is not.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # the second field is the program's name in brackets and may hold anything
    return int(stat[stat.rindex(b")") + 2 :].split()[19])


def utc(timestamp: float) -> str:
    """ISO 8601 with microseconds, UTC."""
    return datetime.fromtimestamp(timestamp, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Sample:
    """One ping: round trip, and how far the head's clocks are ahead of ours (ns)."""

    rtt_ns: int
    offset_ns: int
    """CLOCK_MONOTONIC: add to a time of this node to get the head's."""
    wall_offset_ns: int
    """CLOCK_REALTIME, for the record's `clock_offsets_s`."""


class ClockOffset:
    """The offset of the head's clock against this node's, as in NTP: of the last pings the one with the shortest way.

    Only of the last: clocks drift apart by some ten microseconds a second.
    """

    def __init__(self, keep: int = 8) -> None:
        self._samples: deque[Sample] = deque(maxlen=keep)

    def add(self, sent_ns: int, head_ns: int, head_wall_ns: int) -> None:
        """A pong has come: when we sent the ping, when the head answered, each on its own clock."""
        received_ns = time.monotonic_ns()
        wall_ns = time.time_ns()
        half = (received_ns - sent_ns) // 2
        self._samples.append(Sample(received_ns - sent_ns, head_ns - (sent_ns + half), head_wall_ns - (wall_ns - half)))

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def best(self) -> Sample:
        """The sample with the shortest round trip; zero offsets before the first."""
        return min(self._samples, key=lambda sample: sample.rtt_ns, default=Sample(0, 0, 0))
