"""The command line must feel instant: start-up against the libraries that it can't do without."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from benchmarks.harness import milliseconds, paired_ratios, process_seconds, row

CAMPAIGN = Path(sys.executable).with_name("campaign")


def run() -> list[dict[str, Any]]:
    """`campaign --help` against `import click`."""
    ratios, ours, theirs = paired_ratios(
        lambda: process_seconds([CAMPAIGN, "--help"]),
        lambda: process_seconds([sys.executable, "-c", "import click"]),
        pairs=21,
        warmup=2,
    )
    return [
        row(
            "campaign --help / import click",
            ratios,
            "x",
            bound=1.5,
            kind="max",
            detail=f"{milliseconds(ours)} against {milliseconds(theirs)}",
        )
    ]
