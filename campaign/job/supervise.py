"""One attempt at one run, from the first agent to the last: start, watch, stop."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import time
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from campaign.job.classify import Failure, scheduler_class
from campaign.job.clock import JobClock
from campaign.job.frames import Message
from campaign.job.gather import Gather
from campaign.job.hub import Hub, Peer
from campaign.job.launch import Launcher
from campaign.job.network import resolve, with_suffix
from campaign.job.outcome import Outcome, Stop, decide
from campaign.job.spec import RunSpec, visible_spec
from campaign.job.wakeup import Wakeup
from campaign.job.writer import RecordWriter
from campaign.slurm.nodelist import expand

FLUSH_S = 5.0
FAIL_GRACE_S = 10.0
"""After the first rank has failed the others have so long to say what they saw, then they are ended."""
STOP_LIMIT_S = 20.0
"""For the agents' last data after a stop. Slurm kills KillWait (30 s by default) after its SIGTERM."""
TERM_GRACE_S = 8.0
LAUNCHER_S = 2.0
"""What the agents had sent may arrive a little after their step has ended."""
TAIL_NODES = 3
TAIL_LIMIT_S = 3.0
SELF_TERM_S = 2.0
"""A rank that SIGTERM ended may have had it from Slurm a moment before we have ours."""
START_TIMEOUT_S = {"slurm": 600.0, "local": 60.0}


@dataclass(slots=True)
class Node:
    """One agent as the head knows it."""

    peer: Peer
    name: str
    host: dict[str, Any]
    port: int | None
    ready: bool = False
    launched: bool = False
    idle: bool = False
    gone: bool = False
    wall_offset_s: float = 0.0
    bytes_dropped: int = 0
    progress: int = -1
    last_steps: dict[str, int] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """True when nothing more comes from it."""
        return self.idle or self.gone


class Supervisor:
    """Runs the selector loop until every agent has handed over its last data or can't any more."""

    def __init__(
        self,
        spec: RunSpec,
        writer: RecordWriter,
        clock: JobClock,
        deadline_s: float,
        wakeup: Wakeup,
        log: Callable[[str], None],
    ) -> None:
        """`deadline_s`: seconds after job_start at which the run is ended with state `timeout`."""
        self.spec = spec
        self.clock = clock
        self.node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        self.gather = Gather(writer, clock, spec.world_size)
        self.nodes: dict[int, Node] = {}
        """Agents by node rank."""
        self.failures: dict[int, Failure] = {}
        """Ranks that failed before they were told to end."""
        self.ranks_ended = 0
        self.tails: dict[int, list[str]] = {}
        self.launch: Message = {}
        """What the first node did to argv and environment."""
        self.stop: Stop | None = None
        self._writer = writer
        self._log = log
        self._wakeup = wakeup
        self._deadline_s = deadline_s
        self._warn_at_s = deadline_s - spec.signal_lead_s if spec.scheduler == "local" else None
        start_s = float(spec.record.get("start_timeout_s") or START_TIMEOUT_S[spec.scheduler])
        self._start_by = time.monotonic() + start_s
        hang_s = spec.record.get("hang_timeout_s")
        self._hang_s = None if hang_s is None else float(hang_s)
        self._started = False
        self._ended_at: dict[int, int] = {}
        self._asked: dict[int, int] = {}
        """Rank whose last lines were asked for, by node rank."""
        self._stop_by: float | None = None
        self._fail_by: float | None = None
        self._progress_at = time.monotonic()
        self._flush_at = time.monotonic() + FLUSH_S
        self._launcher_ended_at: float | None = None
        self._hub = Hub(
            spec.token,
            spec.nodes,
            interface=spec.network.get("interface"),
            local=spec.scheduler == "local",
            log=log,
        )
        self._launcher = Launcher(spec, self._hub.addresses, start_s, log)

    # -- the loop ----------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Start the ranks when all agents are there, watch, end them; how it ended."""
        selector = self._hub.selector
        selector.register(self._wakeup, selectors.EVENT_READ, "wakeup")
        selector.register(self._launcher.output, selectors.EVENT_READ, "launcher")
        try:
            while not self._over():
                self._poll(0.2)
                self._on_time(time.monotonic())
            self._await_tails()
        finally:
            self._hub.broadcast({"k": "end"})
            self._hub.flush(2.0)
            selector.unregister(self._wakeup)
            self._hub.close()
            self._launcher.end(5.0)
            self._launcher.close()
        if self._started:
            self.gather.phase("ranks_done", self.node)
        self.gather.finish()
        return self._outcome()

    def _poll(self, timeout: float) -> None:
        for source in self._hub.poll(timeout, self._on_message, self._on_gone):
            if source == "wakeup":
                for number in self._wakeup.take():
                    self._on_signal(number)
            elif not self._launcher.read():
                self._hub.selector.unregister(self._launcher.output)

    def _over(self) -> bool:
        now = time.monotonic()
        if self._stop_by is not None and now > self._stop_by:
            return True
        known = all(node.over for node in self.nodes.values())
        if len(self.nodes) == self.spec.nodes and known:
            return not self._may_be_terminated(now)
        return self.stop is not None and known and self._launcher.ended()

    def _may_be_terminated(self, now: float) -> bool:
        """Only SIGTERM has ended ranks, and we may be about to hear of it ourselves."""
        if self.stop is not None or not self.failures:
            return False
        latest = max(self._ended_at.values()) / 1e6
        by_term = all(failure.signal == "SIGTERM" for failure in self.failures.values())
        return by_term and self.clock.elapsed_s() - latest < SELF_TERM_S

    # -- what happens ------------------------------------------------------------------------------------------------

    def _on_signal(self, number: signal.Signals) -> None:
        if number == signal.SIGUSR2:
            self._warn()
        elif number == signal.SIGTERM:
            self._stop(Stop("term", "the job was told to end (SIGTERM)"))
        elif number == signal.SIGINT:
            self._stop(Stop("interrupt", "interrupted (SIGINT)"))

    def _warn(self) -> None:
        """The end is near: told to workloads that have a handler, since it kills all others."""
        if self.spec.record.get("on_warning") == "signal":
            self._hub.broadcast({"k": "signal", "signal": "SIGUSR2"})
        else:
            self._log("the time limit is near; the workload declares no handler (record.on_warning), so it isn't told")

    def _on_message(self, peer: Peer, message: Message) -> None:
        assert peer.node_rank is not None
        kind = message["k"]
        if kind == "hello":
            self.nodes[peer.node_rank] = Node(peer, str(message["node"]), message["host"], message["port"])
            self.gather.phase("agents_up", str(message["node"]))
            if self.stop is not None:
                self._tell_stop(peer)
            return
        node = self.nodes[peer.node_rank]
        if kind == "ready":
            node.ready = True
            node.wall_offset_s = message["wall_offset_ns"] / 1e9
            self._start_when_ready()
        elif kind == "launched":
            node.launched = True
            self.gather.phase("launched", node.name, self.clock.t_us(message["t_ns"] + message["offset_ns"]))
            if peer.node_rank == 0:
                self.launch = message
            self._progress_at = time.monotonic()
        elif kind == "data":
            self.gather.data(node.name, message)
            if message["progress"] != node.progress:
                node.progress = message["progress"]
                self._progress_at = time.monotonic()
        elif kind == "console":
            self._writer.add_console(b64decode(message["start"]), message["skipped"], b64decode(message["rest"]))
        elif kind == "exit":
            self._on_exit(peer, node, message)
        elif kind == "tail":
            self.tails[message["rank"]] = message["lines"]
        elif kind == "idle":
            node.idle = True
            node.bytes_dropped = message["bytes_dropped"]
            node.last_steps = message["last_steps"]
            node.wall_offset_s = message["wall_offset_ns"] / 1e9
        elif kind == "terminated":
            self._stop(Stop("term", f"the job was told to end ({message['signal']} on {node.name})"))
        elif kind == "failed":
            self._stop(Stop("node", f"{node.name} can't run its ranks: {message['reason']}", message["class"]))

    def _on_exit(self, peer: Peer, node: Node, message: Message) -> None:
        self.ranks_ended += 1
        rank = message["rank"]
        t_us = self.clock.t_us(message["t_ns"] + message["offset_ns"])
        self._progress_at = time.monotonic()
        if message["code"] == 0 or message["stopped"]:
            return
        assert peer.node_rank is not None
        self._ended_at[rank] = t_us
        self.failures[rank] = Failure(
            rank, node.name, message["code"], message["signal"], (message["last"],), message["oom"]
        )
        self._log(f"rank {rank} on {node.name} failed: {message['signal'] or message['code']}: {message['last']}")
        if peer.node_rank not in self._asked and len(self._asked) < TAIL_NODES:
            self._asked[peer.node_rank] = rank
            self._hub.send(peer, {"k": "tail", "rank": rank})
        if self._fail_by is None:
            self._fail_by = time.monotonic() + FAIL_GRACE_S

    def _on_gone(self, peer: Peer) -> None:
        node = self.nodes.get(-1 if peer.node_rank is None else peer.node_rank)
        if node is None or node.over:
            return
        node.gone = True
        if self.stop is None:
            self._stop(Stop("node", f"the agent on {node.name} is gone", "node", self.clock.t_us()))

    def _start_when_ready(self) -> None:
        if self._started or self.stop or len(self.nodes) < self.spec.nodes:
            return
        if not all(node.ready for node in self.nodes.values()):
            return
        self._started = True
        self._hub.broadcast(
            {
                "k": "start",
                "spec": visible_spec(self.spec),
                "master_addr": self._master_addr(),
                "master_port": self.nodes[0].port,
                "interval_s": 1.0 + self.spec.nodes / 500,
            }
        )

    def _master_addr(self) -> str:
        """Where ranks meet: the first node, by the name of its fast interface, or that name's address."""
        if self.spec.scheduler == "local":
            return "127.0.0.1"
        first = self.nodes[0].name
        name = with_suffix(first, self.spec.network.get("master_addr_suffix"))
        address = resolve(name)
        if address is None:
            self._log(f"{name} has no address here; ranks meet at {first}")
            name, address = first, resolve(first)
        return address if self.spec.network.get("resolve_ip") and address else name

    # -- time --------------------------------------------------------------------------------------------------------

    def _on_time(self, now: float) -> None:
        elapsed_s = self.clock.elapsed_s()
        if now >= self._flush_at:
            self._flush_at = now + FLUSH_S
            self._writer.flush()
        if self.stop is not None:
            return
        if elapsed_s >= self._deadline_s:
            self._stop(Stop("deadline", f"the time limit of {self.spec.walltime_s:g} s was reached"))
        elif self._warn_at_s is not None and elapsed_s >= self._warn_at_s:
            self._warn_at_s = None
            self._warn()
        elif self._fail_by is not None and now >= self._fail_by:
            self._stop(Stop("rank", "a rank has failed"))
        elif not self._started and now >= self._start_by:
            self._stop(Stop("node", self._not_up("did not come up in time"), "node"))
        elif self._hang_s is not None and self._started and now - self._progress_at > self._hang_s:
            self._stop(Stop("hang", f"no output and no record for {self._hang_s:g} s", "hang"))
        elif self._launcher.ended():
            self._on_launcher_ended(now)

    def _on_launcher_ended(self, now: float) -> None:
        self._launcher_ended_at = self._launcher_ended_at or now
        if now - self._launcher_ended_at > LAUNCHER_S and not self._over():
            said = [line for line in self._launcher.lines if line.strip()][-3:]
            reason = self._not_up("the step of the agents ended") + (f": {' | '.join(said)}" if said else "")
            self._stop(Stop("node", reason, scheduler_class(self._launcher.lines) or "node"))

    def _not_up(self, what: str) -> str:
        missing = self.missing_nodes()
        if not missing:
            return what
        names = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
        return f"{what}; {len(missing)} of {self.spec.nodes} nodes missing: {names}"

    def _stop(self, stop: Stop) -> None:
        """End the run: the first reason counts."""
        if self.stop is not None:
            return
        if stop.kind == "term" and self.clock.elapsed_s() >= self._deadline_s:
            stop = Stop("deadline", f"the time limit of {self.spec.walltime_s:g} s was reached")
        self.stop = stop
        self._stop_by = time.monotonic() + STOP_LIMIT_S
        self._log(stop.reason)
        for node in self.nodes.values():
            if not node.over:
                self._tell_stop(node.peer)
        if len(self.nodes) < self.spec.nodes:
            # agents that aren't up yet need not be waited for
            self._launcher.end(0.0 if not self.nodes else 2.0)

    def _tell_stop(self, peer: Peer) -> None:
        self._hub.send(peer, {"k": "stop", "grace_s": TERM_GRACE_S})

    def _await_tails(self) -> None:
        """The last lines that were asked for, from agents that still can send them."""
        deadline = time.monotonic() + TAIL_LIMIT_S
        while time.monotonic() < deadline:
            waiting = [node for node, rank in self._asked.items() if rank not in self.tails]
            if not any(not self.nodes[node].gone and not self.nodes[node].peer.closed for node in waiting):
                return
            self._poll(0.1)

    # -- the end -----------------------------------------------------------------------------------------------------

    def missing_nodes(self) -> list[str]:
        """Names of the nodes whose last data did not come."""
        names = expand(os.environ.get("SLURM_JOB_NODELIST", "")) if self.spec.scheduler == "slurm" else []
        missing = []
        for rank in range(self.spec.nodes):
            node = self.nodes.get(rank)
            if node is None:
                missing.append(names[rank] if rank < len(names) else f"node {rank}")
            elif not node.idle:
                missing.append(node.name)
        return missing

    @property
    def bytes_dropped(self) -> int:
        """Bytes of records that nodes had to drop."""
        return sum(node.bytes_dropped for node in self.nodes.values())

    def ordered_failures(self) -> list[Failure]:
        """The ranks that failed by themselves, the first one first, by the head's clock."""
        return [self.failures[rank] for rank in sorted(self.failures, key=lambda rank: (self._ended_at[rank], rank))]

    def _culprit(self) -> Failure | None:
        """The rank that failed first, with what it last printed."""
        first = next(iter(self.ordered_failures()), None)
        return first and replace(first, lines=self.tails.get(first.rank, first.lines))

    def _outcome(self) -> Outcome:
        culprit = self._culprit()
        lost_us = None if self.stop is None else self.stop.t_us
        if culprit is not None and lost_us is not None and self._ended_at[culprit.rank] > lost_us:
            # the ranks of a lost node drag the others along: only one that failed before tells more than its node's end
            culprit = None
        return decide(
            self.stop,
            culprit,
            ranks_done=self.ranks_ended >= self.spec.world_size and not self.failures,
            missing_nodes=self.missing_nodes(),
            scheduler_lines=self._launcher.lines,
            lagging=self._lagging(),
        )

    def _lagging(self) -> str | None:
        """The rank that is furthest behind, when ranks differ: where to look after a hang."""
        steps = {int(rank): step for node in self.nodes.values() for rank, step in node.last_steps.items()}
        if not steps or min(steps.values()) == max(steps.values()):
            return None
        rank = min(steps, key=lambda rank: (steps[rank], rank))
        return f"rank {rank} had reached step {steps[rank]}, others {max(steps.values())}"
