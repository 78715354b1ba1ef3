"""The Recorder's cost per step: at most 5 microseconds, flushes included; importing it: at most 10 ms."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import row
from campaign.record import Recorder

STEPS = 100_000
ROUNDS = 7
BOUND_US = 5.0
IMPORT_BOUND_MS = 10.0
IMPORT = "import time; start = time.perf_counter(); import campaign.record; print((time.perf_counter() - start) * 1e3)"


def run() -> list[dict[str, Any]]:
    """Rows for `step` with all parts given, for `step` outside a campaign, and for the import."""
    base = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=base) as folder:
        recorder = Recorder(Path(folder, "0.bin"), cap_bytes=1 << 40)
        written = [_us_per_step(recorder) for _ in range(ROUNDS)]
        recorder.close()
        assert recorder.bytes_dropped == 0
    silent = Recorder(None)
    outside = [_us_per_step(silent) for _ in range(ROUNDS)]
    imports = [
        float(subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True).stdout)
        for _ in range(ROUNDS)
    ]
    return [
        row("Recorder.step", written, "µs", bound=BOUND_US, kind="max", detail=f"{STEPS:,} steps a round"),
        row(
            "Recorder.step, no campaign",
            outside,
            "µs",
            bound=BOUND_US,
            kind="max",
            detail="the same calls outside a run",
        ),
        row(
            "import campaign.record", imports, "ms", bound=IMPORT_BOUND_MS, kind="max", detail="in a fresh interpreter"
        ),
    ]


def _us_per_step(recorder: Recorder) -> float:
    start = time.perf_counter()
    for step in range(STEPS):
        recorder.step(
            1,
            step,
            samples=64,
            data_wait_s=0.001,
            h2d_s=0.001,
            forward_s=0.01,
            backward_s=0.02,
            comm_exposed_s=0.003,
            optimizer_s=0.002,
            step_s=0.036,
            loss=0.5,
        )
    return (time.perf_counter() - start) / STEPS * 1e6
