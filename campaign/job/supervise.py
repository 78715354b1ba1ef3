"""One attempt at one run, from the first agent to the last: start, watch, stop."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable

from campaign.job.classify import Failure, scheduler_class, signal_name
from campaign.job.clock import JobClock
from campaign.job.frames import Message, to_bytes
from campaign.job.gather import Gather
from campaign.job.hub import Hub, Peer
from campaign.job.launch import Launcher
from campaign.job.network import resolve, with_suffix
from campaign.job.nodes import Failures, Node, Nodes
from campaign.job.outcome import Outcome, Stop, decide
from campaign.job.spec import RunSpec, visible_spec
from campaign.job.wakeup import Wakeup
from campaign.job.writer import RecordWriter

FLUSH_S = 5.0
FAIL_GRACE_S = 10.0
"""After the first rank has failed the others have so long to say what they saw, then they are ended."""
STOP_LIMIT_S = 18.0
"""For the agents' last data after a stop. Slurm kills KillWait (30 s by default) after its SIGTERM."""
TERM_GRACE_S = 3.0
"""Between SIGTERM and SIGKILL for ranks. Short: a site's KillWait may be, and the record has to be written in it."""
QUIET_S = 3.0
"""An agent that doesn't answer a stop for so long, or says nothing for so long after the grace, is lost."""
LAUNCHER_S = 2.0
"""What the agents had sent may arrive a little after their step has ended."""
TAIL_LIMIT_S = 3.0
SELF_TERM_S = 2.0
"""A rank that SIGTERM ended may have had it from Slurm a moment before we have ours."""
START_TIMEOUT_S = {"slurm": 600.0, "local": 60.0}
START_NOTE_S = 30.0
"""Between two lines in the job's log that say which nodes are waited for."""


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
        self.nodes = Nodes(spec)
        self.failures = Failures()
        self.launch: Message = {}
        """What the first node did to argv and environment."""
        self.stop: Stop | None = None
        self._writer = writer
        self._log = log
        self._wakeup = wakeup
        self._deadline_s = deadline_s
        self._warn_at_s = deadline_s - spec.signal_lead_s if spec.scheduler == "local" else None
        start_s = float(spec.record.get("start_timeout_s") or START_TIMEOUT_S[spec.scheduler])
        self._launched_at = time.monotonic()
        self._start_by = self._launched_at + start_s
        self._note_at = self._launched_at + START_NOTE_S
        hang_s = spec.record.get("hang_timeout_s")
        self._term_grace_s = float(spec.record.get("term_grace_s", TERM_GRACE_S))
        self._fail_grace_s = float(spec.record.get("fail_grace_s", FAIL_GRACE_S))
        self._hang_s = None if hang_s is None else float(hang_s)
        self._started = False
        self._ranks_done = 0
        self._last_exit_us: int | None = None
        self._terminated: tuple[float, str] | None = None
        """When an agent had SIGTERM, and what to say of it: we should have it too, unless its step alone was ended."""
        self._stop_by: float | None = None
        self._fail_by: float | None = None
        self._progress_at = time.monotonic()
        self._flush_at = time.monotonic() + FLUSH_S
        self._launcher_ended_at: float | None = None
        self._handlers: dict[str, Callable[[Node, Message], None]] = {
            "ready": self._on_ready,
            "launched": self._on_launched,
            "data": self._on_data,
            "console": self._on_console,
            "exit": self._on_exit,
            "tail": self._on_tail,
            "idle": self._on_idle,
            "stopping": self._on_stopping,
            "terminated": self._on_terminated,
            "failed": self._on_cant,
        }
        self._hub = Hub(
            spec.token,
            spec.nodes,
            interface=spec.network.get("interface"),
            local=spec.scheduler == "local",
            log=log,
        )
        try:
            self._launcher = Launcher(spec, self._hub.addresses, start_s, log)
        except OSError:
            self._hub.close()
            raise

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
            # after a stop every second counts: Slurm kills the head KillWait after its SIGTERM
            patience_s = 5.0 if self.stop is None else 1.0
            self._hub.broadcast({"k": "end"})
            self._hub.flush(min(2.0, patience_s))
            selector.unregister(self._wakeup)
            self._hub.close()
            self._launcher.end(patience_s)
            self._launcher.close()
        if self._last_exit_us is not None:
            self.gather.phase("ranks_done", self.node, self._last_exit_us)
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
        if self._stop_by is not None and (now > self._stop_by or not self._still_expected(now)):
            return True
        if self.nodes.complete and self.nodes.over:
            return not self._may_be_terminated()
        return self.stop is not None and self.nodes.over and self._launcher.ended()

    def _still_expected(self, now: float) -> bool:
        """After a stop: whether any node may still send its last data."""
        since = (now - QUIET_S, now - QUIET_S - self._term_grace_s)
        unfinished = [node for node in self.nodes.known.values() if not node.over]
        return not unfinished or any(node.heard_at > since[node.stopping] for node in unfinished)

    def _may_be_terminated(self) -> bool:
        """Only SIGTERM has ended ranks, and we may be about to hear of it ourselves."""
        if self.stop is not None:
            return False
        if self._terminated is not None:
            return True
        if not self.failures:
            return False
        since_s = self.clock.elapsed_s() - self.failures.latest_us / 1e6
        return self.failures.only_by_term and since_s < SELF_TERM_S

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
        if message["k"] == "hello":
            self._on_hello(peer, message)
        else:
            node = self.nodes.known[peer.node_rank]
            node.heard_at = time.monotonic()
            self._handlers[message["k"]](node, message)

    def _on_hello(self, peer: Peer, message: Message) -> None:
        assert peer.node_rank is not None
        node = Node(peer, str(message["node"]), message["host"], message["port"])
        self.nodes.known[peer.node_rank] = node
        self.gather.phase("agents_up", node.name)
        if self.stop is not None:
            self._tell_stop(peer)

    def _on_ready(self, node: Node, message: Message) -> None:
        node.ready = True
        node.wall_offset_s = message["wall_offset_ns"] / 1e9
        if self.nodes.ready and not self._started and self.stop is None:
            self._start()

    def _on_launched(self, node: Node, message: Message) -> None:
        node.launched = True
        self._progress_at = time.monotonic()
        self.gather.phase("launched", node.name, self.clock.t_us(message["t_ns"] + message["offset_ns"]))
        if node.peer.node_rank == 0:
            self.launch = message

    def _on_data(self, node: Node, message: Message) -> None:
        self.gather.data(node.name, message)
        if message["progress"] != node.progress:
            node.progress = message["progress"]
            self._progress_at = time.monotonic()

    def _on_console(self, node: Node, message: Message) -> None:
        self._writer.add_console(to_bytes(message["start"]), message["skipped"], to_bytes(message["rest"]))

    def _on_exit(self, node: Node, message: Message) -> None:
        self._progress_at = time.monotonic()
        t_us = self.clock.t_us(message["t_ns"] + message["offset_ns"])
        self._last_exit_us = max(t_us, self._last_exit_us or 0)
        if message["stopped"]:
            return
        if message["code"] == 0:
            self._ranks_done += 1
            return
        rank, code, number, last = message["rank"], message["code"], message["signal"], message["last"]
        self._log(f"rank {rank} on {node.name} failed: {signal_name(number) if number else code}: {last}")
        self.failures.add(Failure(rank, node.name, code, number, (last,), message["oom"]), t_us)
        assert node.peer.node_rank is not None
        if self.failures.wants_tail(node.peer.node_rank, rank):
            self._hub.send(node.peer, {"k": "tail", "rank": rank})
        if self._fail_by is None:
            self._fail_by = time.monotonic() + self._fail_grace_s

    def _on_tail(self, node: Node, message: Message) -> None:
        self.failures.tails[message["rank"]] = message["lines"]

    def _on_idle(self, node: Node, message: Message) -> None:
        node.idle = True
        node.bytes_dropped = message["bytes_dropped"]
        node.last_steps = message["last_steps"]
        node.wall_offset_s = message["wall_offset_ns"] / 1e9

    def _on_stopping(self, node: Node, message: Message) -> None:
        node.stopping = True

    def _on_terminated(self, node: Node, message: Message) -> None:
        self._terminated = self._terminated or (time.monotonic(), f"the agent on {node.name} was told to end")

    def _on_cant(self, node: Node, message: Message) -> None:
        self._stop(Stop("node", f"{node.name} can't run its ranks: {message['reason']}", message["class"]))

    def _on_gone(self, peer: Peer) -> None:
        node = self.nodes.known.get(-1 if peer.node_rank is None else peer.node_rank)
        if node is None or node.over:
            return
        node.gone = True
        # before the start, srun ends agents that are up because others aren't: the step's end tells who is missing
        if self._started:
            self._stop(Stop("node", f"the agent on {node.name} is gone", "node", self.clock.t_us()))

    def _start(self) -> None:
        """All nodes are up: the ranks may start."""
        self._started = True
        self._hub.broadcast(
            {
                "k": "start",
                "spec": visible_spec(self.spec),
                "master_addr": self._master_addr(),
                "master_port": self.nodes.known[0].port,
                "interval_s": 1.0 + self.spec.nodes / 500,
            }
        )

    def _master_addr(self) -> str:
        """Where ranks meet: the first node, by the name of its fast interface, or that name's address."""
        if self.spec.scheduler == "local":
            return "127.0.0.1"
        first = self.nodes.known[0].name
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
        if elapsed_s >= self._deadline_s and not self._started and self.nodes.absent():
            self._stop(self.nodes.never_up(f"the time limit of {self.spec.walltime_s:g} s", self._hub.addresses))
        elif elapsed_s >= self._deadline_s:
            self._stop(Stop("deadline", f"the time limit of {self.spec.walltime_s:g} s was reached"))
        elif self._warn_at_s is not None and elapsed_s >= self._warn_at_s:
            self._warn_at_s = None
            self._warn()
        elif self._fail_by is not None and now >= self._fail_by:
            self._stop(Stop("rank", "a rank has failed"))
        elif self._started and self._terminated is not None and now - self._terminated[0] > SELF_TERM_S:
            self._stop(Stop("node", self._terminated[1], scheduler_class(self._launcher.lines) or "node"))
        elif not self._started and now >= self._start_by:
            self._stop(self.nodes.never_up(f"{now - self._launched_at:.0f} s", self._hub.addresses))
        elif not self._started and now >= self._note_at:
            self._note_at = now + START_NOTE_S
            at = " or ".join(self._hub.addresses)
            waited_s = now - self._launched_at
            self._log(self.nodes.not_up(f"waiting since {waited_s:.0f} s for the agents to connect to {at}"))
        elif self._hang_s is not None and self._started and now - self._progress_at > self._hang_s:
            self._stop(Stop("hang", f"no output and no record for {self._hang_s:g} s", "hang"))
        elif self._launcher.ended():
            self._on_launcher_ended(now)

    def _on_launcher_ended(self, now: float) -> None:
        self._launcher_ended_at = self._launcher_ended_at or now
        if now - self._launcher_ended_at > LAUNCHER_S and not self._over():
            if not self.nodes.known and self._launcher.controller_away:
                self._launch_again()  # until the start timeout
                return
            said = [line for line in self._launcher.lines if line.strip()][-3:]
            reason = self.nodes.not_up("the step of the agents ended") + (f": {' | '.join(said)}" if said else "")
            self._stop(Stop("node", reason, scheduler_class(self._launcher.lines) or "node"))

    def _launch_again(self) -> None:
        """The controller was away when the step was to be made: no fault of this run or its nodes."""
        self._log("the step is tried again: the controller couldn't be reached")
        with contextlib.suppress(KeyError):
            self._hub.selector.unregister(self._launcher.output)
        self._launcher.again()
        self._hub.selector.register(self._launcher.output, selectors.EVENT_READ, "launcher")
        self._launcher_ended_at = None

    def _stop(self, stop: Stop) -> None:
        """End the run: the first reason counts."""
        if self.stop is not None:
            return
        if stop.kind == "term" and self.clock.elapsed_s() >= self._deadline_s:
            stop = Stop("deadline", f"the time limit of {self.spec.walltime_s:g} s was reached")
        self.stop = stop
        now = time.monotonic()
        self._stop_by = now + STOP_LIMIT_S
        self._log(stop.reason)
        for node in self.nodes.known.values():
            if not node.over:
                node.heard_at = now
                self._tell_stop(node.peer)
        if not self.nodes.complete:
            # agents that aren't up yet need not be waited for
            self._launcher.end(2.0 if self.nodes.known else 0.0)
        self._writer.flush()

    def _tell_stop(self, peer: Peer) -> None:
        self._hub.send(peer, {"k": "stop", "grace_s": self._term_grace_s})

    def _await_tails(self) -> None:
        """The last lines that were asked for, from agents that still can send them."""
        deadline = time.monotonic() + TAIL_LIMIT_S
        while time.monotonic() < deadline:
            if all(self.nodes.known[rank].peer.closed for rank in self.failures.awaited()):
                return
            self._poll(0.1)

    # -- the end -----------------------------------------------------------------------------------------------------

    def _outcome(self) -> Outcome:
        # the ranks of a lost node drag others along: only a rank that failed before it tells more than the node's end
        culprit = self.failures.culprit(None if self.stop is None else self.stop.t_us)
        return decide(
            self.stop,
            culprit,
            ranks_done=self._ranks_done >= self.spec.world_size,
            # before the start it is no news that a node has sent nothing
            missing_nodes=self.nodes.missing() if self._started else (),
            scheduler_lines=self._launcher.lines,
            lagging=self.nodes.lagging(),
        )
