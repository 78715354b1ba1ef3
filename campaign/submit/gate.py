"""The gate: the smallest point of a study runs first, so that a typo costs one job."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from sqlite3 import Row

from campaign.slurm.states import FINAL
from campaign.submit.ledger import Ledger
from campaign.words import count as number


@dataclass(frozen=True, slots=True)
class Held:
    """Runs that wait for their gate."""

    site: str
    study: str
    count: int
    gate_run: str
    gate_state: str

    @property
    def failed(self) -> bool:
        """True when the gate has ended and can't release them."""
        return self.gate_state in FINAL and self.gate_state != "done"

    def as_of(self, ledger: Ledger) -> Held:
        """The same with the gate's state as it is now: it may have been queued meanwhile."""
        return dataclasses.replace(self, gate_state=ledger.states([self.gate_run])[self.gate_run])

    @property
    def message(self) -> str:
        """Why they wait and what releases them."""
        if self.failed:
            return (
                f"{self.study} on {self.site}: the gate run {self.gate_run} ended as {self.gate_state}; "
                f"{number(self.count, 'run')} held. See `campaign show {self.gate_run}`, mend it, "
                f"then `campaign retry --run {self.gate_run}` and `campaign submit`"
            )
        return (
            f"{self.study} on {self.site}: {number(self.count, 'run')} waiting for the gate run {self.gate_run} "
            f"({self.gate_state}); `campaign submit` queues them when it is done"
        )


def hold_gated(ledger: Ledger, rows: Sequence[Row]) -> tuple[list[Row], list[Held]]:
    """Split planned rows into those that may be queued now and those held until their gate run is done."""
    gates = {
        (row["site"], row["study"], row["plan_id"]): row
        for row in ledger.query("SELECT site, study, plan_id, run_id, state FROM runs WHERE gate = 1")
    }
    free: list[Row] = []
    held: dict[tuple[str, str, str], int] = {}
    for row in rows:
        key = (row["site"], row["study"], row["plan_id"])
        gate = gates.get(key)
        if not row["gated"] or gate is None or gate["state"] == "done":
            free.append(row)
        else:
            held[key] = held.get(key, 0) + 1
    return free, [Held(key[0], key[1], count, gates[key]["run_id"], gates[key]["state"]) for key, count in held.items()]
