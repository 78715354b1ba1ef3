"""What `status` and `run` show: counts per site and study, straight from the ledger in two queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from campaign.slurm.reasons import words
from campaign.slurm.states import ACTIVE, RUN_STATES
from campaign.submit.ledger import Ledger, age_s


@dataclass(frozen=True, slots=True)
class Group:
    """The runs of one study on one site."""

    site: str
    study: str
    counts: dict[str, int]
    """Runs by state; states nobody is in are left out."""
    superseded: int
    gpu_h: float
    node_h: float

    @property
    def total(self) -> int:
        """Runs that count: superseded ones don't."""
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Poll:
    """When a site's scheduler was last heard."""

    site: str
    age_s: float | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Overview:
    """Where all runs stand."""

    groups: list[Group]
    polls: list[Poll]
    pending: list[dict[str, Any]] = field(default_factory=list)
    """{site, reason, words, count, expected_start} of queued jobs: why they wait, and when the first should start."""

    def count(self, *states: str) -> int:
        """Runs in any of these states."""
        return sum(group.counts.get(state, 0) for group in self.groups for state in states)

    @property
    def active(self) -> int:
        """Runs for which a job may exist."""
        return self.count(*ACTIVE)

    @property
    def total(self) -> int:
        """All runs that count."""
        return sum(group.total for group in self.groups)


def overview(ledger: Ledger, run_ids: Sequence[str] | None = None) -> Overview:
    """Counts over all runs, or over `run_ids`. Hours are of attempts that ended, from start and end of their jobs."""
    restrict = ""
    if run_ids is not None:
        ledger.db.execute("CREATE TEMP TABLE IF NOT EXISTS wanted (run_id TEXT PRIMARY KEY)")
        ledger.db.execute("DELETE FROM wanted")
        ledger.db.executemany("INSERT OR IGNORE INTO wanted VALUES (?)", [(run_id,) for run_id in run_ids])
        restrict = "WHERE run_id IN (SELECT run_id FROM wanted)"
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    for row in ledger.query(
        f"SELECT site, study, state, superseded_by IS NOT NULL AS old, count(*) AS n FROM runs {restrict} "
        "GROUP BY 1, 2, 3, 4"
    ):
        group = groups.setdefault((row["site"], row["study"]), {"counts": {}, "old": 0})
        if row["old"]:
            group["old"] += row["n"]
        else:
            group["counts"][row["state"]] = row["n"]
    hours = _hours(ledger, restrict)
    return Overview(
        groups=[
            Group(site, study, _in_order(group["counts"]), group["old"], *hours.get((site, study), (0.0, 0.0)))
            for (site, study), group in sorted(groups.items())
        ],
        polls=[
            Poll(row["site"], None if row["ok_at"] is None else age_s(row["ok_at"]), row["error"])
            for row in ledger.query("SELECT * FROM polls ORDER BY site")
        ],
        pending=[
            {**dict(row), "words": words(row["reason"])}
            for row in ledger.query(
                "SELECT site, reason, count(*) AS count, min(expected_start) AS expected_start FROM jobs "
                "WHERE state = 'queued' AND scheduler = 'slurm' GROUP BY 1, 2 ORDER BY 1, 3 DESC"
            )
        ],
    )


def _in_order(counts: dict[str, int]) -> dict[str, int]:
    return {state: counts[state] for state in RUN_STATES if state in counts}


def _hours(ledger: Ledger, restrict: str) -> dict[tuple[str, str], tuple[float, float]]:
    """(GPU-hours, node-hours) by (site, study)."""
    seconds = "(julianday(jobs.ended) - julianday(jobs.started)) * 86400"
    rows = ledger.query(
        f"SELECT runs.site, study, sum({seconds} * nodes) / 3600 AS node_h, "
        f"sum({seconds} * nodes * ranks_per_node * gpus_per_rank) / 3600 AS gpu_h "
        f"FROM jobs JOIN (SELECT * FROM runs {restrict}) AS runs USING (run_id) "
        "WHERE jobs.started IS NOT NULL AND jobs.ended IS NOT NULL GROUP BY 1, 2"
    )
    return {(row["site"], row["study"]): (row["gpu_h"] or 0.0, row["node_h"] or 0.0) for row in rows}
