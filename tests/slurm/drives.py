"""Every fault that is produced in the one campaign, in the order in which they are begun."""

from __future__ import annotations

from collections.abc import Callable

from tests.slurm import daemondrives, jobdrives
from tests.slurm.faults import Drill
from tests.slurm.jobdrives import Drive

Known = tuple[Callable[[Drill], Drive], tuple[str, ...]]
DRIVES: dict[str, Known] = {
    "slurmctld killed within a second of a submit": (daemondrives.killed_after_submit, ("second",)),
    "slurmctld killed": (daemondrives.killed, ("killed",)),
    "slurmctld restarted": (daemondrives.restarted, ("restarted",)),
    "TIMEOUT": (jobdrives.timeout, ("timeout", "ended")),
    "node dies": (jobdrives.died, ("died",)),
    "link of a node cut": (jobdrives.cut, ("cut", "island")),
    "head killed": (jobdrives.head, ("head",)),
    "run folder removed": (jobdrives.removed, ("removed",)),
    "requeued by hand": (jobdrives.requeued, ("requeued",)),
    "preempted": (jobdrives.preempted, ("preempted",)),
    "node drained, job held, submit folder removed": (jobdrives.drained, ("drained", "waits", "held", "unsent")),
    "array partly cancelled by hand": (jobdrives.cancelled, ("cancelled",)),
    "OUT_OF_MEMORY": (jobdrives.memory, ("memory",)),
    "agent killed": (jobdrives.agent, ("agent",)),
    "purged": (jobdrives.purged, ("purged",)),
    "sbatch refused: account, QOS": (daemondrives.refused, ("account", "qos")),
    "partition down, inactive": (daemondrives.partition, ("down", "inactive")),
    "slurmdbd down": (daemondrives.database, ("dbd",)),
}
"""Fault -> how it is produced, and the studies that it hits. In the order in which they are begun."""
