"""How much may be queued now: the site's submit limit, and the project's own caps. What doesn't fit stays planned."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from sqlite3 import Row
from typing import TYPE_CHECKING

from campaign.errors import Problem
from campaign.submit.budget import Budget, budget, gpu_h_of
from campaign.words import amount
from campaign.words import count as number

if TYPE_CHECKING:
    from campaign.config import Config
    from campaign.site import Site
    from campaign.submit.ledger import Ledger

ACTIVE_ELEMENTS = (
    "SELECT site, count(*) AS n FROM (SELECT DISTINCT site, tag, array_index FROM jobs WHERE scheduler = 'slurm' AND "
    "state IN ('submitting', 'queued', 'running', 'unknown')) GROUP BY 1"
)
AGAIN = "campaign submit  (again, when jobs have ended)"
ROUNDING_GPU_H = 1e-9


@dataclass(frozen=True, slots=True)
class Room:
    """Array elements that a site may still take, and whose limit it is."""

    left: int
    limit: Problem
    """The limit, at the line that sets it."""

    def problem(self, wanted: int) -> Problem:
        """What is said of `wanted` elements when fewer fit."""
        stay = f"{number(wanted - self.left, 'job')} stay planned"
        return dataclasses.replace(self.limit, message=f"{self.limit.message}: {stay}", hint=AGAIN)


def room(config: Config, ledger: Ledger, site: Site) -> Room | None:
    """The tightest of the site's `limits.submit_jobs` and the project's `caps.queued`; None: no limit is known."""
    if site.local:
        return None
    active = {row["site"]: int(row["n"]) for row in ledger.query(ACTIVE_ELEMENTS)}
    return min(_rooms(config, site, active), key=lambda found: found.left, default=None)


def _rooms(config: Config, site: Site, active: dict[str, int]) -> Iterator[Room]:
    limit, cap = site.scheduler.limits.submit_jobs, config.caps.queued
    if limit is not None:
        here = active.get(site.name, 0)
        message = f"{site.name} allows {number(limit, 'job')} at once, {here} are there"
        yield Room(max(0, limit - here), site.problem(("scheduler", "limits", "submit_jobs"), message))
    if cap is not None:
        everywhere = sum(active.values())
        message = f"the project allows itself {number(cap, 'queued job')}, {everywhere} are there"
        yield Room(max(0, cap - everywhere), config.problem(("caps", "queued"), message))


def within_cap(config: Config, ledger: Ledger, rows: Sequence[Row]) -> tuple[list[Row], Problem | None]:
    """The rows, in order, that `caps.gpu_hours` leaves room for, and what is said when that isn't all of them.

    Every run counts with its whole walltime until it has ended; what it didn't use is room again then.
    """
    if config.caps.gpu_hours is None or not rows:
        return list(rows), None
    state = budget(config, ledger)
    kept = _fitting(rows, state)
    if len(kept) == len(rows):
        return kept, None
    message = (
        f"the project's cap of {amount(config.caps.gpu_hours)} GPU-h leaves room for {amount(state.left_gpu_h or 0.0)} "
        f"({amount(state.spent_gpu_h)} spent, {amount(state.committed_gpu_h)} queued or running): "
        f"{number(len(rows) - len(kept), 'run')} stay planned"
    )
    hint = "raise the cap, or shorten walltimes and plan again; what running jobs leave unused is room again later"
    return kept, config.problem(("caps", "gpu_hours"), message, hint=hint)


def _fitting(rows: Sequence[Row], state: Budget) -> list[Row]:
    left = state.left_gpu_h or 0.0
    kept = []
    for row in rows:
        left -= gpu_h_of(row["spec"])
        if left < -ROUNDING_GPU_H:
            break
        kept.append(row)
    return kept
