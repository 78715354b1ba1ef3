"""How far an attempt came, from its record, final or partial."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from campaign.plan.walltime import Pilot
from campaign.submit.ledger import seconds_between
from campaign.submit.pilots import startup_s
from campaign.submit.resumed import epochs_of


@dataclass(frozen=True, slots=True)
class Progress:
    """What one attempt did."""

    epochs: int
    """Epochs that it finished."""
    last_epoch: int | None
    """As the program counts them; None: it finished none."""
    elapsed_s: float
    """From the start of the run to its end."""
    startup_s: float
    """Until the slowest rank had its first step; 0 where that wasn't recorded."""

    def whole(self, run_id: str, nodes: int, world_size: int, epochs: int) -> Pilot | None:
        """The run as it would have been with all of `epochs` epochs; None when none was finished."""
        if self.epochs < 1 or epochs < self.epochs:
            return None
        work_s = max(0.0, self.elapsed_s - self.startup_s) * epochs / self.epochs
        return Pilot(run_id, nodes, world_size, self.startup_s, work_s)


def progress(run_dir: Path, attempt: int) -> Progress | None:
    """How far this attempt came; None when its record is missing or can't be read."""
    folder = run_dir / f"a{attempt}"
    try:
        record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
        elapsed_s = seconds_between(record["started"], record["ended"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    epochs = epochs_of(run_dir, attempt)
    return Progress(
        epochs=len(epochs),
        last_epoch=max(epochs, default=None),
        elapsed_s=elapsed_s,
        startup_s=min(startup_s(folder / "events.parquet"), elapsed_s),
    )
