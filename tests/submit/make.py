"""Plans made by hand, for tests that need no YAML."""

from __future__ import annotations

from typing import Any

from campaign.plan.model import Plan, PlannedRun, Price, SourceFile


def make_run(run_id: str, **changes: Any) -> PlannedRun:
    """A run with small values; keyword arguments replace them."""
    values: dict[str, Any] = {
        "run_id": run_id, "site": "here", "study": "s", "series": "x", "workload": None, "command": ("true",),
        "metrics": (), "params": {}, "axes": {"nodes": 1}, "strategy": None, "scaling": "none", "nodes": 1,
        "ranks_per_node": 1, "cpus_per_rank": 1, "gpus_per_rank": 0, "world_size": 1, "local_batch": None,
        "global_batch": None, "repeat": 0, "order": 0, "gate": False, "gated": False, "oversubscribed": False,
        "data": None, "staging": "none", "redirect": True, "record": {}, "retry": {}, "pack": "false",
        "partition": None, "qos": None, "account": None, "reservation": None, "constraint": None, "switches": None,
        "exclude": None, "nodelist": None, "mail": None, "memory_bytes": None, "walltime_s": 60, "revision": None,
        "image_digest": None, "price": Price(0.0, 0.1, None, None, 12),
    }  # fmt: skip
    values.update(changes)
    return PlannedRun(**values)


def make_plan(plan_id: str, *runs: PlannedRun, created: str = "2026-01-01T00:00:00.000000Z", **overrides: Any) -> Plan:
    """A plan over the sites and studies of its runs."""
    return Plan(
        plan_id=plan_id,
        created=created,
        sites={run.site: SourceFile(f"sites/{run.site}.yaml", "aa") for run in runs},
        studies={run.study: SourceFile(f"studies/{run.study}.yaml", "bb") for run in runs},
        overrides=overrides,
        runs=tuple(runs),
    )
