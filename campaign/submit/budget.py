"""The project's cap on GPU-hours: what is spent, what is committed, what may still be queued."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from campaign.errors import Problem
from campaign.submit.charges import committed_gpu_h, costs
from campaign.submit.ledger import Ledger
from campaign.words import amount

if TYPE_CHECKING:
    from campaign.config import Config
    from campaign.plan.model import PlannedRun


@dataclass(frozen=True, slots=True)
class Budget:
    """GPU-hours, all sites together."""

    cap_gpu_h: float | None
    """`caps.gpu_hours` of campaign.yaml, or a tighter one of the command; None: no cap."""
    spent_gpu_h: float
    """Attempts that have ended: as charged, else as held."""
    committed_gpu_h: float
    """Attempts that are queued or running, at their whole walltime."""

    @property
    def left_gpu_h(self) -> float | None:
        """What may still be queued; never below 0."""
        if self.cap_gpu_h is None:
            return None
        return max(0.0, self.cap_gpu_h - self.spent_gpu_h - self.committed_gpu_h)

    def share(self, more_gpu_h: float) -> float | None:
        """Part of the cap that is used when `more_gpu_h` is queued too."""
        if self.cap_gpu_h is None:
            return None
        return (self.spent_gpu_h + self.committed_gpu_h + more_gpu_h) / self.cap_gpu_h


def budget(config: Config, ledger: Ledger, *, cap: float | None = None) -> Budget:
    """Where the project stands, from the ledger; against `cap` in GPU-hours, else the project's own."""
    cap = config.caps.gpu_hours if cap is None else cap
    return Budget(cap, sum(cost.gpu_h for cost in costs(ledger)), committed_gpu_h(ledger))


def over_cap(config: Config, state: Budget, wanted_gpu_h: float) -> Problem | None:
    """The warning of a plan that may cost more than is left."""
    left = state.left_gpu_h
    if left is None or wanted_gpu_h <= left:
        return None
    message = (
        f"the plan may cost {amount(wanted_gpu_h)} GPU-h, and {amount(left)} of the project's cap are left "
        f"({amount(state.spent_gpu_h)} spent, {amount(state.committed_gpu_h)} queued or running)"
    )
    hint = "fewer points or repeats, a shorter walltime, or another cap; submit queues what fits"
    allowed = f"at most {amount(state.cap_gpu_h or 0.0)} GPU-h in all"
    return config.problem(("caps", "gpu_hours"), message, allowed=allowed, hint=hint)


def still_to_run(runs: Iterable[PlannedRun], states: dict[str, str]) -> list[PlannedRun]:
    """Runs of a plan that can run and are neither done nor on their way. `states`: of runs that the ledger knows."""
    return [run for run in runs if run.can_run and states.get(run.run_id, "planned") == "planned"]
