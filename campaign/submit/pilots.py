"""Measured runs as pilots of `walltime: auto`: from the ledger and from the runs' records."""

from __future__ import annotations

import json
from pathlib import Path
from sqlite3 import Row
from typing import TYPE_CHECKING

from campaign.job.spec import run_folder
from campaign.plan.walltime import Pilot, Pilots
from campaign.submit.ledger import seconds_between

if TYPE_CHECKING:
    from campaign.submit.ledger import Ledger

NEWEST = 20
"""Pilots of one series that are read; the newest tell most."""

FIRST = ("first_step", "first_batch", "launched")
"""Phases that end the start-up, best first."""

DONE = (
    "SELECT run_id, nodes, world_size, attempts, run_root FROM runs WHERE site = ? AND series = ? AND state = 'done' "
    "ORDER BY changed DESC LIMIT ?"
)


def pilots(ledger: Ledger) -> Pilots:
    """Looks pilots up in this ledger; every series is read once."""
    known: dict[tuple[str, str], list[Pilot]] = {}

    def look(site: str, series: str) -> list[Pilot]:
        if (site, series) not in known:
            rows = ledger.query(DONE, (site, series, NEWEST))
            found = [_pilot(row) for row in rows]
            known[site, series] = [pilot for pilot in found if pilot is not None]
        return known[site, series]

    return look


def _pilot(row: Row) -> Pilot | None:
    """The pilot that a run's record tells of; None when there is none, or it says too little."""
    folder = run_folder(row["run_root"], row["run_id"]) / f"a{row['attempts']}"
    try:
        record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
        whole_s = seconds_between(record["started"], record["ended"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    start_s = min(startup_s(folder / "events.parquet"), whole_s)
    return Pilot(row["run_id"], row["nodes"], row["world_size"], start_s, whole_s - start_s)


def startup_s(events: Path) -> float:
    """Seconds until the slowest rank had its first step; 0 when the record doesn't say."""
    if not events.exists():
        return 0.0
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table(events, columns=["name", "t_us"], filters=[("kind", "=", "phase"), ("name", "in", FIRST)])
    for name in FIRST:
        latest = pc.max(table.filter(pc.equal(table["name"], name))["t_us"]).as_py()
        if latest is not None:
            return float(latest) / 1e6
    return 0.0
