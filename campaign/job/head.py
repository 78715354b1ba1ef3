"""The head: `python -P -m campaign.job.head SUBMIT_DIR [--index I]`, the one process per job that answers for it.

It claims its runs, starts one node agent per node, listens to them, and writes the record. Under Slurm it runs in the
batch step on the first node, in the place of the batch shell (`exec`), so that the warning signal reaches it.

Exit codes: 0 every run done, or claimed by another job; 1 a run ended otherwise; 2 nothing to do or specs unreadable.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from campaign.job.claim import Claimed, claim
from campaign.job.clock import JobClock, utc
from campaign.job.failedlog import failed_log
from campaign.job.outcome import NO_EXIT, Outcome
from campaign.job.processes import many_files, no_core_dumps
from campaign.job.recordjson import begun, record
from campaign.job.spec import RunSpec, read_specs
from campaign.job.supervise import Supervisor
from campaign.job.wakeup import Wakeup
from campaign.job.writer import RecordWriter

OWN_FAULTS = ("config", "user", "quota")
"""Failures that would hit every other run of a study too."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2, signal.SIGHUP)


def log(message: str) -> None:
    """One line of the job's log."""
    print(f"{utc(time.time())} {message}", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run all specs of one array element, one after another."""
    parser = argparse.ArgumentParser(prog="python -P -m campaign.job.head", description="Run one element of a job.")
    parser.add_argument("submit_dir", type=Path, metavar="SUBMIT_DIR", help="folder with specs.jsonl")
    parser.add_argument(
        "--index",
        type=int,
        default=int(os.environ.get("SLURM_ARRAY_TASK_ID") or 0),
        help="array index (default: $SLURM_ARRAY_TASK_ID, else 0)",
    )
    arguments = parser.parse_args(argv)
    clock = JobClock.of_process()
    wakeup = Wakeup(SIGNALS)
    no_core_dumps()
    many_files()
    try:
        specs = read_specs(arguments.submit_dir, arguments.index)
    except (OSError, ValueError, TypeError) as error:
        log(f"{arguments.submit_dir}: the specs can't be read: {error}")
        return 2
    if not specs:
        log(f"{arguments.submit_dir}: no run has array index {arguments.index}")
        return 2
    return Job(specs, clock, wakeup, arguments.submit_dir / f"cancel.{arguments.index}").run()


class Job:
    """The runs of one array element."""

    def __init__(self, specs: Sequence[RunSpec], clock: JobClock, wakeup: Wakeup, cancel_marker: Path) -> None:
        """`cancel_marker`: a file that `campaign cancel` makes; looked for after the claim, so that either this head
        sees the file or the command sees the claim."""
        self._specs = specs
        self._cancel_marker = cancel_marker
        self._clock = clock
        self._wakeup = wakeup
        self._ended: str | None = None
        """Why no further run may start."""

    def run(self) -> int:
        """Claim all, then run what was claimed; the exit code."""
        code = 0
        mine: list[RunSpec] = []
        for spec in self._specs:
            try:
                claim(spec)
            except Claimed as error:
                log(f"run {spec.run_id} attempt {spec.attempt}: cancelled, {error}")
            except OSError as error:
                log(f"run {spec.run_id} attempt {spec.attempt}: can't be claimed, so it does not run: {error}")
                code = 1
            else:
                mine.append(spec)
        for place, spec in enumerate(mine):
            clock = self._clock if place == 0 else JobClock.now()
            final = self._run_one(spec, clock)
            if final is None or final["state"] != "done":
                code = 1
            if spec.gate and final is not None and final["fail_class"] in OWN_FAULTS:
                self._ended = f"the first run of the ladder, {spec.run_id}, failed ({final['fail_class']})"
        return code

    def _run_one(self, spec: RunSpec, clock: JobClock) -> dict[str, Any] | None:
        """One run; its record, None when not even that could be begun."""
        log(f"run {spec.run_id} attempt {spec.attempt}: {spec.nodes} nodes with {spec.ranks_per_node} ranks each")
        try:
            writer = RecordWriter(
                spec.run_dir, spec.attempt, begun(spec, clock), group_readable=spec.group_readable, log=log
            )
        except OSError as error:
            log(f"run {spec.run_id} attempt {spec.attempt}: no place for its record, so it does not run: {error}")
            return None
        supervisor, outcome = None, self._not_started(spec, clock)
        if outcome is None:
            supervisor, outcome = self._supervise(spec, writer, clock)
        failed = b"" if supervisor is None else failed_log(supervisor.failures)
        place, final = writer.finish(record(spec, clock, outcome, supervisor), failed)
        log(f"run {spec.run_id} attempt {spec.attempt}: {_ending(final)}; record in {place}")
        return final

    def _not_started(self, spec: RunSpec, clock: JobClock) -> Outcome | None:
        """How a run ends that may not even start; None when it may."""
        if self._cancel_marker.exists():
            return Outcome("cancelled", None, "cancelled before it began", NO_EXIT)
        if self._ended is None and self._deadline_s(spec, clock) <= 0:
            self._ended = "the time of the job is used up"
        if self._ended is not None:
            return Outcome("interrupted", None, f"not started: {self._ended}", NO_EXIT)
        return None

    def _supervise(self, spec: RunSpec, writer: RecordWriter, clock: JobClock) -> tuple[Supervisor | None, Outcome]:
        """Run the ranks; who watched them, and how they ended."""
        try:
            supervisor = Supervisor(spec, writer, clock, self._deadline_s(spec, clock), self._wakeup, log)
        except OSError as error:
            return None, Outcome("failed", "config", f"the agents can't be started: {error}", NO_EXIT)
        supervisor.gather.phase("job_start", supervisor.node, 0)
        supervisor.gather.phase("staged", supervisor.node)
        try:
            outcome = supervisor.run()
        except Exception as error:
            # a fault of ours must not cost the data that have come: they are recorded, and the log says what it was
            log(f"the head failed: {traceback.format_exc()}")
            outcome = Outcome("failed", "unknown", f"the head failed: {error!r}", NO_EXIT)
        supervisor.gather.phase("record_written", supervisor.node)
        if supervisor.stop is not None and supervisor.stop.kind in ("term", "interrupt"):
            self._ended = supervisor.stop.reason
        return supervisor, outcome

    def _deadline_s(self, spec: RunSpec, clock: JobClock) -> float:
        """Seconds after the run's start at which it must end: its own walltime, and the job's."""
        if spec.scheduler == "local":
            return spec.walltime_s
        job_s = sum(other.walltime_s for other in self._specs)
        left_s = job_s - (clock.start_ns - self._clock.start_ns) / 1e9
        margin_s = max(5.0, min(30.0, 0.1 * job_s))
        return min(spec.walltime_s if len(self._specs) > 1 else left_s, left_s - margin_s)


def _ending(final: dict[str, Any]) -> str:
    kind = f"{final['state']} ({final['fail_class']})" if final["fail_class"] else str(final["state"])
    return f"{kind}: {final['reason']}" if final["reason"] else kind


if __name__ == "__main__":
    sys.exit(main())
