"""What became of a try: how far it came, how long that took, and what failed. Read from its record."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaign.record import STEP_LIMIT
from campaign.tables import PHASES
from campaign.words import count as number

LINES = 40
"""Last lines that are shown of what failed."""
AFTERWARDS = ("ranks_done", "record_written")


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of the start, as the last rank (or node) reached it."""

    name: str
    t_s: float
    """Seconds since the job began."""
    ranks: int | None
    """Ranks that reached it; None for phases of head and agents."""


@dataclass(slots=True)
class TryReport:
    """How a try went."""

    ran: bool
    """True when nothing failed: the exit code of `campaign try`."""
    verdict: str
    state: str
    fail_class: str | None = None
    reason: str | None = None
    came_up: bool = False
    """All ranks were started."""
    phases: list[Phase] = field(default_factory=list)
    """In the order of time; those of the end are left out."""
    steps: int = 0
    """Of rank 0, as its program reported them to the Recorder."""
    median_step_s: float | None = None
    """Of rank 0, the first step left out; None: not measured."""
    failed: dict[str, Any] | None = None
    """{rank, node, code, signal} of the rank that failed first."""
    lines: list[str] = field(default_factory=list)
    """Last lines of failing ranks, else of the job."""

    @property
    def phase(self) -> str | None:
        """The last phase of the start that any rank reached."""
        return self.phases[-1].name if self.phases else None


def read_report(run_dir: Path, submit_dir: Path | None, *, steps: int, state: str, reason: str | None) -> TryReport:
    """The report of the one attempt below `run_dir`.

    `state`, `reason`: what the scheduler says, for a job that left no record. `submit_dir`: where its log is.
    """
    folder = run_dir / "a1"
    record = _json(folder / "record.json")
    if record is None:
        lines = _job_log(submit_dir)
        verdict = f"it ended as {state} without a record" + (f": {reason}" if reason else "")
        return TryReport(False, verdict, state, None, reason, lines=lines)
    events = _table(folder / "events.parquet")
    phases = _phases([event for event in events if event["kind"] == "phase"])
    taken, median_step_s = _steps(_table(folder / "steps.parquet"))
    report = TryReport(
        ran=False,
        verdict="",
        state=record["state"],
        fail_class=record.get("fail_class"),
        reason=record.get("reason"),
        came_up=any(phase.name == "launched" for phase in phases) and not record.get("missing_nodes"),
        phases=[phase for phase in phases if phase.name not in (*AFTERWARDS, STEP_LIMIT)],
        steps=taken,
        median_step_s=median_step_s,
    )
    report.ran, report.verdict = _verdict(report, phases, steps, epochs=bool(_table(folder / "epochs.parquet")))
    if not report.ran:
        leaving = record.get("exit") or {}
        if leaving.get("rank") is not None:
            report.failed = {name: leaving.get(name) for name in ("rank", "node", "code", "signal")}
        report.lines = _last_lines(folder / "failed.log") or _job_log(submit_dir)
    return report


def _verdict(report: TryReport, phases: Sequence[Phase], asked: int, *, epochs: bool) -> tuple[bool, str]:
    """Whether it ran, and what is said of it."""
    if report.state == "done":
        return True, _how_far(report, phases, asked)
    if not report.came_up:
        return False, f"it did not come up: {report.reason or report.state}"
    if report.state != "timeout":
        how = "failed" if report.state == "failed" else f"ended as {report.state}"
        return False, f"it {how}: {report.reason}"
    if report.steps:
        return True, f"it ran until the time limit without failing: {number(report.steps, 'step')} of {asked}"
    if epochs or all(phase.ranks is None for phase in phases):
        return True, "it ran until the time limit without failing; its program reports no steps"
    return False, f"no step within the time limit; it reached {report.phase}"


def _how_far(report: TryReport, phases: Sequence[Phase], asked: int) -> str:
    if any(phase.name == STEP_LIMIT for phase in phases):
        return f"it ran {number(asked, 'step')} and ended as asked"
    if report.steps:
        return f"it ran to its own end, after {number(report.steps, 'step')}"
    return "it ran to its own end; its program reports no steps (campaign.record.Recorder does)"


def _phases(events: Sequence[dict[str, Any]]) -> list[Phase]:
    """Phases with the time at which the last of those that reached one did so, in the order of time."""
    times: dict[str, list[tuple[int, int | None]]] = {}
    for event in events:
        times.setdefault(event["name"], []).append((event["t_us"], event["rank"]))
    found = []
    for name, reached in times.items():
        ranks = {rank for _, rank in reached if rank is not None}
        found.append(Phase(name, max(t_us for t_us, _ in reached) / 1e6, len(ranks) or None))
    order = {name: place for place, name in enumerate(PHASES)}
    return sorted(found, key=lambda phase: (phase.t_s, order.get(phase.name, len(order))))


def _steps(rows: Sequence[dict[str, Any]]) -> tuple[int, float | None]:
    """(steps of rank 0, their median in s). Without `step_s` from the program: from one step's end to the next."""
    mine = sorted((row for row in rows if row["rank"] == 0), key=lambda row: row["t_s"])
    told = [row["step_s"] for row in mine[1:] if row["step_s"] is not None]
    if not told:
        ends = [row["t_s"] for row in mine]
        told = [after - before for before, after in itertools.pairwise(ends)]
    return len(mine), statistics.median(told) if told else None


def _json(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def _table(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    except (pa.ArrowException, OSError):
        return []
    return rows


def _last_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()[-LINES:]
    except OSError:
        return []


def _job_log(submit_dir: Path | None) -> list[str]:
    """What the head itself (or the set-up before it) printed."""
    if submit_dir is None:
        return []
    logs = sorted([*submit_dir.glob("*_log.out"), *submit_dir.glob("c*_0.log")])
    return _last_lines(logs[-1]) if logs else []
