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


def record(spec: RunSpec, clock: JobClock, outcome: Outcome, supervisor: Supervisor | None) -> dict[str, Any]:
    """All keys but `files`. `supervisor` is None for a run whose ranks were never started."""
    data: dict[str, Any] = {
        "schema": RECORD_SCHEMA,
        "complete": True,
        "missing_nodes": [],
        "run_id": spec.run_id,
        "attempt": spec.attempt,
        "site": spec.site,
        "tag": spec.tag,
        "state": outcome.state,
        "fail_class": outcome.fail_class,
        "reason": outcome.reason,
        "exit": outcome.exit,
        "started": utc(clock.started),
        "ended": utc(time.time()),
        "world_size": None,
        "nodes": [],
        "ranks_per_node": spec.ranks_per_node,
        "clock_offsets_s": {},
        "host": {},
        "versions": {"python": sys.version.split()[0], **spec.provenance.get("versions", {})},
        "commit": spec.provenance.get("commit"),
        "dirty": spec.provenance.get("dirty"),
        "image_digest": spec.provenance.get("image_digest"),
        "data_digest": spec.provenance.get("data_digest"),
        "argv": rank_argv(spec),
        "env_set": {},
        "env_kept": {},
        "env_scrubbed": [],
        "audit": None,
        "bytes_dropped": 0,
        "resumed_from": None,
    }
    if supervisor is not None:
        data |= _seen(spec, supervisor)
    return data


def _seen(spec: RunSpec, supervisor: Supervisor) -> dict[str, Any]:
    nodes = [supervisor.nodes[rank] for rank in sorted(supervisor.nodes)]
    launch, gather = supervisor.launch, supervisor.gather
    missing = supervisor.missing_nodes()
    first = supervisor.nodes.get(0)
    host = dict(first.host) if first is not None else {}
    if host:
        host["affinity"] = launch.get("affinity")
        host["oversubscribed"] = not host["gpu"] and spec.ranks_per_node > host["cores"]
    launched = all(node.launched for node in nodes) and len(nodes) == spec.nodes
    return {
        "complete": not missing,
        "missing_nodes": missing,
        # what was started, for programs that say nothing of a process group
        "world_size": gather.world_size or (spec.world_size if launched else None),
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
        "bytes_dropped": supervisor.bytes_dropped,
    }
