"""What a new plan changes against an older one: runs new, gone, or placed otherwise; files that changed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from campaign.plan.model import Plan, PlannedRun
from campaign.slurm.states import ACTIVE

PLACED = (
    "study", "partition", "qos", "account", "reservation", "constraint", "switches", "exclude", "nodelist", "mail",
    "memory_bytes", "walltime_s", "pack", "ladder", "allocation_nodes", "gate", "record", "retry", "baseline", "data",
    "problems",
)  # fmt: skip
"""Fields that may change without making another run of it, in the order in which they are told."""


@dataclass(frozen=True, slots=True)
class Change:
    """One field that differs in runs of both plans: how many of them, and the first old and new value."""

    site: str
    study: str
    field: str
    runs: int
    old: Any
    new: Any


@dataclass(frozen=True, slots=True)
class Count:
    """Runs of one study on one site, by what becomes of them."""

    site: str
    study: str
    new: int = 0
    """Only in the new plan."""
    same: int = 0
    """In both."""
    valid: int = 0
    """Of those, measured: they stay valid and are not run again."""
    gone: int = 0
    """Only in the old plan."""
    kept: int = 0
    """Of those, measured: they stay in the store."""
    active: int = 0
    """Of those, queued or running: `campaign cancel` ends them."""


@dataclass(frozen=True, slots=True)
class Diff:
    """The new plan against the old one."""

    old_plan: str
    old_created: str
    files: list[str]
    """Site and study files whose contents have changed."""
    counts: list[Count]
    changes: list[Change]

    @property
    def empty(self) -> bool:
        """True when nothing differs."""
        return not self.files and not self.changes and not any(count.new or count.gone for count in self.counts)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def diff(old: Plan, new: Plan, states: Mapping[str, str]) -> Diff:
    """`states`: of the runs that the ledger knows."""
    before, after = _by_id(old.runs), _by_id(new.runs)
    pairs = {(run.site, run.study) for run in new.runs}
    # an older plan of more sites or studies says nothing about those that this one doesn't plan
    before = {run_id: run for run_id, run in before.items() if (run.site, run.study) in pairs or run_id in after}
    return Diff(old.plan_id, old.created, _files(old, new), _counts(before, after, states), _changes(before, after))


def _by_id(runs: Iterable[PlannedRun]) -> dict[str, PlannedRun]:
    return {run.run_id: run for run in runs}


def _files(old: Plan, new: Plan) -> list[str]:
    changed = []
    for before, after in ((old.sites, new.sites), (old.studies, new.studies)):
        changed += [after[name].path for name in after if name in before and before[name].sha256 != after[name].sha256]
    return changed


def _counts(
    before: Mapping[str, PlannedRun], after: Mapping[str, PlannedRun], states: Mapping[str, str]
) -> list[Count]:
    counts: dict[tuple[str, str], dict[str, int]] = {}

    def add(run: PlannedRun, *names: str) -> None:
        group = counts.setdefault((run.site, run.study), {})
        for name in names:
            group[name] = group.get(name, 0) + 1

    for run_id, run in after.items():
        done = states.get(run_id) == "done"
        add(run, *(("same", "valid") if done else ("same",)) if run_id in before else ("new",))
    for run_id, run in before.items():
        if run_id not in after:
            state = states.get(run_id)
            fate = ("kept",) if state == "done" else ("active",) if state in ACTIVE else ()
            add(run, "gone", *fate)
    return [Count(site, study, **group) for (site, study), group in counts.items()]


def _changes(before: Mapping[str, PlannedRun], after: Mapping[str, PlannedRun]) -> list[Change]:
    found: dict[tuple[str, str, str], Change] = {}
    for run_id, run in after.items():
        if run_id not in before:
            continue
        for name in PLACED:
            old, new = (_told(name, getattr(one, name)) for one in (before[run_id], run))
            if old != new:
                key = (run.site, run.study, name)
                first = found.get(key, Change(*key, 0, old, new))
                found[key] = Change(*key, first.runs + 1, first.old, first.new)
    return list(found.values())


def _told(name: str, value: Any) -> Any:
    if name == "problems":
        return "; ".join(problem.message for problem in value) or None
    return list(value) if isinstance(value, tuple) else value
