"""What a submission did: queued, held back, refused, not now."""

from __future__ import annotations

from dataclasses import dataclass, field

from campaign.errors import Problem
from campaign.submit.gate import Held
from campaign.words import count as number


@dataclass
class SubmitReport:
    """What one `submit` did. Counts are runs unless said otherwise."""

    queued: int = 0
    batches: int = 0
    """sbatch calls that were answered with a job id (local: queues started)."""
    held: list[Held] = field(default_factory=list)
    changed: list[Problem] = field(default_factory=list)
    """Runs refused because their site or study file has changed since the plan."""
    refused: list[Problem] = field(default_factory=list)
    limited: list[Problem] = field(default_factory=list)
    """Submit limits met: the rest stays planned."""
    uncertain: list[Problem] = field(default_factory=list)
    jobs: list[dict[str, object]] = field(default_factory=list)
    """{site, tag, job_id, runs} of each batch that was queued."""
    not_again: set[str] = field(default_factory=set)
    """Runs that were refused: trying them again changes nothing."""
    full_sites: set[str] = field(default_factory=set)
    """Sites whose submit limit was met."""
    away: set[str] = field(default_factory=set)
    """Sites whose cluster gave no answer."""
    elsewhere: list[Elsewhere] = field(default_factory=list)
    """Sites nobody named, whose cluster isn't the one here."""
    advice: list[str] = field(default_factory=list)
    """What would make the next submission surer."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Runs of a site that isn't here: they stay planned."""

    site: str
    count: int
    problem: Problem

    @property
    def message(self) -> str:
        """Why they stay, and where they can be queued."""
        runs = f"{number(self.count, 'run')} {'stays' if self.count == 1 else 'stay'} planned"
        return f"{self.site}: {runs}: {self.problem.message}; submit on {self.site}'s login node"
