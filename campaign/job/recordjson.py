"""`record.json`: what a run's record says about itself (contract section 6)."""

from __future__ import annotations

import sys
import time
from typing import Any

from campaign.job.clock import JobClock, utc
from campaign.job.outcome import Outcome
from campaign.job.rankenv import rank_argv
from campaign.job.spec import RunSpec
from campaign.job.supervise import Supervisor
from campaign.tables import RECORD_SCHEMA


def begun(spec: RunSpec, clock: JobClock) -> dict[str, Any]:
    """`partial.json`: what is known when the run begins."""
    keys = ("commit", "dirty", "image_digest", "data_digest")
    return {
        "schema": RECORD_SCHEMA,
        "run_id": spec.run_id,
        "attempt": spec.attempt,
        "site": spec.site,
        "tag": spec.tag,
        "started": utc(clock.started),
        "ranks_per_node": spec.ranks_per_node,
        "argv": rank_argv(spec),
        **{key: spec.provenance.get(key) for key in keys},
    }


def record(spec: RunSpec, clock: JobClock, outcome: Outcome, supervisor: Supervisor | None) -> dict[str, Any]:
    """All keys but `files`. `supervisor` is None for a run whose ranks were never started."""
    data: dict[str, Any] = {
        **begun(spec, clock),
        "complete": True,
        "missing_nodes": [],
        "state": outcome.state,
        "fail_class": outcome.fail_class,
        "reason": outcome.reason,
        "exit": outcome.exit,
        "ended": utc(time.time()),
        "world_size": None,
        "nodes": [],
        "clock_offsets_s": {},
        "host": {},
        "versions": {"python": sys.version.split()[0], **spec.provenance.get("versions", {})},
        "env_set": {},
        "env_kept": {},
        "env_scrubbed": [],
        "audit": None,
        "bytes_dropped": 0,
        "resumed_from": None,
    }
    if supervisor is not None:
        data |= _seen(spec, supervisor)
        if outcome.state == "done":
            data["reason"] = _unseen_metrics(spec, supervisor.gather.observed)
    return data


def _unseen_metrics(spec: RunSpec, observed: set[str]) -> str | None:
    """What a good run was asked for and never printed: most likely the expression doesn't fit the output."""
    names = [metric["name"] for metric in spec.metrics if metric.get("regex") and metric["name"] not in observed]
    return f"no line of rank 0 matched the metric {', '.join(names)}" if names else None


def _seen(spec: RunSpec, supervisor: Supervisor) -> dict[str, Any]:
    nodes = supervisor.nodes.in_order()
    launch, gather = supervisor.launch, supervisor.gather
    missing = supervisor.nodes.missing()
    first = supervisor.nodes.known.get(0)
    host = dict(first.host) if first is not None else {}
    if host:
        host["affinity"] = launch.get("affinity")
        host["oversubscribed"] = not host["gpu"] and spec.ranks_per_node > host["cores"]
    return {
        "complete": not missing,
        "missing_nodes": missing,
        # what was started, for programs that say nothing of a process group
        "world_size": gather.world_size or (spec.world_size if supervisor.nodes.launched else None),
        "nodes": [node.name for node in nodes],
        "clock_offsets_s": {node.name: round(node.wall_offset_s, 9) for node in nodes},
        "host": host,
        "versions": {
            "python": sys.version.split()[0],
            **spec.provenance.get("versions", {}),
            **gather.versions,
        },
        "argv": launch.get("argv") or rank_argv(spec),
        "env_set": launch.get("env_set") or {},
        "env_kept": launch.get("env_kept") or {},
        "env_scrubbed": launch.get("env_scrubbed") or [],
        "audit": gather.audit,
        "bytes_dropped": supervisor.nodes.bytes_dropped + gather.bytes_dropped,
    }
