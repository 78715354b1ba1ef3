"""What the head knows of its nodes and of the ranks that failed on them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from campaign.job.classify import Failure
from campaign.job.hub import Peer
from campaign.job.outcome import Stop
from campaign.job.spec import RunSpec
from campaign.slurm.nodelist import expand

TAIL_NODES = 3
NAMED_NODES = 8
"""So many are named in a message."""
NETWORK_KEYS = "see network.interface and network.master_addr_suffix in the site file (campaign site probe)"


@dataclass(slots=True)
class Node:
    """One agent as the head knows it."""

    peer: Peer
    name: str
    host: dict[str, Any]
    port: int | None
    ready: bool = False
    launched: bool = False
    stopping: bool = False
    """It has been told to end its ranks, and has said so."""
    idle: bool = False
    gone: bool = False
    wall_offset_s: float = 0.0
    bytes_dropped: int = 0
    progress: int = -1
    heard_at: float = field(default_factory=time.monotonic)
    """When it last said something (time.monotonic)."""
    last_steps: dict[str, int] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """True when nothing more comes from it."""
        return self.idle or self.gone


class Nodes:
    """The nodes of a run by node rank, as their agents come up."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self.known: dict[int, Node] = {}

    def in_order(self) -> list[Node]:
        """By node rank."""
        return [self.known[rank] for rank in sorted(self.known)]

    @property
    def complete(self) -> bool:
        """True when every node has said hello."""
        return len(self.known) == self._spec.nodes

    @property
    def ready(self) -> bool:
        """True when every node is there and knows its clock's offset."""
        return self.complete and all(node.ready for node in self.known.values())

    @property
    def launched(self) -> bool:
        """True when the ranks of every node were started."""
        return self.complete and all(node.launched for node in self.known.values())

    @property
    def over(self) -> bool:
        """True when nothing more comes from any node we know."""
        return all(node.over for node in self.known.values())

    @property
    def bytes_dropped(self) -> int:
        """Bytes of records that nodes had to drop."""
        return sum(node.bytes_dropped for node in self.known.values())

    def absent(self) -> list[str]:
        """Names of the nodes whose agent has not come up, from the job's node list."""
        return [self._name(rank) for rank in range(self._spec.nodes) if rank not in self.known]

    def missing(self) -> list[str]:
        """Names of the nodes whose last data did not come."""
        ranks = range(self._spec.nodes)
        return [self._name(rank) for rank in ranks if rank not in self.known or not self.known[rank].idle]

    def not_up(self, what: str) -> str:
        """`what`, and which nodes are missing."""
        absent = self.absent() or self.missing()
        names = ", ".join(absent[:NAMED_NODES])
        if len(absent) > NAMED_NODES:
            names += f" and {len(absent) - NAMED_NODES} more"
        return f"{what}; {len(absent)} of {self._spec.nodes} nodes missing: {names}"

    def never_up(self, within: str, addresses: Sequence[str]) -> Stop:
        """Agents that never connected. Where none of several did, no node broke: the way to the head is wrong."""
        reason = self.not_up(f"did not come up within {within}")
        if self._spec.nodes == 1 or any(self.known):
            return Stop("node", reason, "node")
        reason += f"; no other node reached {' or '.join(addresses)}: {NETWORK_KEYS}"
        return Stop("node", reason, "config" if self._spec.nodes > 2 else "node")

    def _name(self, rank: int) -> str:
        if rank in self.known:
            return self.known[rank].name
        names = expand(os.environ.get("SLURM_JOB_NODELIST", "")) if self._spec.scheduler == "slurm" else []
        return names[rank] if rank < len(names) else f"node {rank}"

    def lagging(self) -> str | None:
        """The rank that is furthest behind, when ranks differ: where to look after a hang."""
        steps = {int(rank): step for node in self.known.values() for rank, step in node.last_steps.items()}
        if not steps or min(steps.values()) == max(steps.values()):
            return None
        rank = min(steps, key=lambda rank: (steps[rank], rank))
        return f"rank {rank} had reached step {steps[rank]}, others {max(steps.values())}"


class Failures:
    """Ranks that failed before they were told to end."""

    def __init__(self) -> None:
        self._by_rank: dict[int, Failure] = {}
        self._at_us: dict[int, int] = {}
        self._asked: dict[int, int] = {}
        """Rank whose last lines are asked for, by node rank."""
        self.tails: dict[int, list[str]] = {}
        """Last lines by rank."""

    def __bool__(self) -> bool:
        return bool(self._by_rank)

    def add(self, failure: Failure, t_us: int) -> None:
        """A rank has failed at this time since job_start."""
        self._by_rank[failure.rank] = failure
        self._at_us[failure.rank] = t_us

    def wants_tail(self, node_rank: int, rank: int) -> bool:
        """Whether to ask this node for the last lines of this rank: one rank a node, of the first three nodes."""
        if node_rank in self._asked or len(self._asked) >= TAIL_NODES:
            return False
        self._asked[node_rank] = rank
        return True

    def awaited(self) -> list[int]:
        """Node ranks that owe us last lines."""
        return [node for node, rank in self._asked.items() if rank not in self.tails]

    @property
    def only_by_term(self) -> bool:
        """True when nothing but SIGTERM has ended ranks."""
        return all(failure.signal == signal.SIGTERM for failure in self._by_rank.values())

    @property
    def latest_us(self) -> int:
        """When the last of them failed, since job_start."""
        return max(self._at_us.values())

    def in_order(self) -> list[Failure]:
        """The first one first, by the head's clock."""
        return [self._by_rank[rank] for rank in sorted(self._by_rank, key=lambda rank: (self._at_us[rank], rank))]

    def culprit(self, before_us: int | None = None) -> Failure | None:
        """The rank that failed first, with its last lines; None when that was not before `before_us`."""
        first = next(iter(self.in_order()), None)
        if first is None or (before_us is not None and self._at_us[first.rank] > before_us):
            return None
        return replace(first, lines=self.tails.get(first.rank) or first.lines)
