"""The node agent: `python -P -m campaign.job.agent`, one per node, started by the head.

It starts this node's ranks when the head says so, drains their output, gathers what they record and streams it. It ends
them and removes the node-local folder on SIGTERM, when the head says stop, and when the head is gone. Standard library
only: thousands of nodes import it at the same time.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from campaign.job import hostinfo, rankenv
from campaign.job.collect import Collector
from campaign.job.folder import NodeFolder, clean_stale
from campaign.job.frames import FrameError, Message, to_text
from campaign.job.guard import Guard
from campaign.job.headlink import HeadLink, NoHead, connect
from campaign.job.network import reserve_port
from campaign.job.oom import oom_kills
from campaign.job.output import Pending
from campaign.job.processes import kill_marked, no_core_dumps
from campaign.job.ranks import Rank, RankStartError, slices, start_rank, why_not_started
from campaign.job.spec import RunSpec
from campaign.job.wakeup import Wakeup
from campaign.redirect import redirected

PINGS = 8
CONSOLE_S = 0.5
LOOK_S = 0.5
PING_S = 20.0
TERM_GRACE_S = 3.0
ROW_BYTES = 64
"""A window, event or epoch that the head did not take, as it is counted."""
FAREWELL_S = 10.0
"""How long a finished agent waits for the head's `end` after a signal."""


class Agent:
    """One node's part of one attempt."""

    def __init__(self, link: HeadLink, node: str, node_rank: int, guard: Guard, wakeup: Wakeup) -> None:
        self.link = link
        self.node = node
        self.node_rank = node_rank
        self.guard = guard
        self.wakeup = wakeup
        self.selector = selectors.DefaultSelector()
        self.selector.register(link, selectors.EVENT_READ, "link")
        self.selector.register(wakeup, selectors.EVENT_READ, "wakeup")
        self.ranks: list[Rank] = []
        self.folder: NodeFolder | None = None
        self.collector: Collector | None = None
        self.console = Pending()
        self.port_holder: socket.socket | None = None
        self.stopping = False
        self.kill_at: float | None = None
        self.leave_at: float | None = None
        self.idle = False
        self.over = False
        self.interval_s = 1.0
        self.progress = 0
        self.oom_before = oom_kills()
        self._timers = {"console": 0.0, "look": 0.0, "data": 0.0, "ping": time.monotonic() + PING_S}

    # -- start -------------------------------------------------------------------------------------------------------

    def hello(self, token: str) -> None:
        """Introduce this node; the first one brings a port for the ranks' rendezvous."""
        port = None
        if self.node_rank == 0:
            seed = os.environ.get("SLURM_JOB_ID", str(os.getpid()))
            port, self.port_holder = reserve_port(seed)
        self.link.send(
            {
                "k": "hello",
                "token": token,
                "node_rank": self.node_rank,
                "node": self.node,
                "pid": os.getpid(),
                "port": port,
                "host": hostinfo.host(),
            }
        )
        self.link.ping()

    def start(self, message: Message) -> None:
        """The head's `start`: make the folder, start the ranks, say so."""
        spec = RunSpec(**message["spec"])
        self.interval_s = float(message["interval_s"])
        try:
            place, env = self._prepare(spec, message)
        except (OSError, re.error) as error:
            self.link.send({"k": "failed", "reason": f"{spec.node_local}: {error}", "class": why_not_started(error)})
            self.stop(0)
            return
        cpus = slices(spec)
        if self.port_holder is not None:
            self.port_holder.close()
        # the moment before the first rank: what follows, exec included, belongs to the ranks' own start
        launched: Message = {"k": "launched", "t_ns": time.monotonic_ns(), "offset_ns": self._offset()}
        self._spawn(spec, place, env, cpus)
        if self.node_rank == 0:
            launched |= {
                "argv": rankenv.rank_argv(spec),
                "env_set": env.set,
                "env_kept": env.kept,
                "env_scrubbed": env.scrubbed,
                "affinity": None if cpus is None else [hostinfo.ranges(cpu_set) for cpu_set in cpus],
            }
        self.link.send(launched)

    def _prepare(self, spec: RunSpec, message: Message) -> tuple[rankenv.NodePlace, rankenv.RankEnv]:
        """The node-local folder with all that ranks find there, and their environment. Raises OSError, re.error."""
        node_local = Path(spec.node_local)
        for name in clean_stale(node_local):
            print(f"{self.node}: removed {node_local / name}, left behind by a job that was killed", flush=True)
        self.folder = NodeFolder(node_local, spec.run_id, spec.attempt)
        self.guard.folder(os.fspath(self.folder.path))
        place = rankenv.NodePlace(
            self.node_rank, message["master_addr"], int(message["master_port"]), os.fspath(self.folder.path)
        )
        Path(place.rank_dir).mkdir()
        ranks = range(self.node_rank * spec.ranks_per_node, (self.node_rank + 1) * spec.ranks_per_node)
        metrics = {rank: Path(place.metrics_file(rank)) for rank in ranks}
        self.collector = Collector(spec, Path(place.rank_dir), ranks, metrics)
        Path(place.spec_file).write_text(json.dumps(message["spec"], ensure_ascii=False), encoding="utf-8")
        moved, kept, folders = redirected(place.folder, os.environ) if spec.redirect else ({}, {}, [])
        for folder in folders:
            Path(folder).mkdir(parents=True, exist_ok=True)
        return place, rankenv.node_env(spec, place, os.environ, (moved, kept))

    def _spawn(
        self, spec: RunSpec, place: rankenv.NodePlace, env: rankenv.RankEnv, cpus: list[set[int]] | None
    ) -> None:
        """Start the ranks; one that can't be started is reported as one that failed, and ends the rest."""
        for local_rank in range(spec.ranks_per_node):
            try:
                rank = start_rank(spec, place, env, local_rank, None if cpus is None else cpus[local_rank])
            except RankStartError as error:
                self.link.send(self._exit(error.rank, error.code, None, time.monotonic_ns(), str(error)))
                return
            self.guard.started(rank.pid)
            self.ranks.append(rank)
            self.selector.register(rank.output, selectors.EVENT_READ, rank)

    # -- loop --------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until the head says `end`, or is gone, or this node has been told to leave."""
        while not self.over:
            for key, events in self.selector.select(0.2):
                if key.data == "link":
                    self._on_link(events)
                elif key.data == "wakeup":
                    for number in self.wakeup.take():
                        self._on_signal(number)
                else:
                    self._drain(key.data)
            self._reap()
            self._on_time(time.monotonic())
            if not self.link.closed:
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.link.queued_bytes else 0)
                self.selector.modify(self.link, wanted, "link")

    def _on_link(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self.link.write()
        if events & selectors.EVENT_READ and not self.link.closed:
            for message in self.link.receive():
                self._on_message(message)
        if self.link.closed:
            self.selector.unregister(self.link)
            self.link.dispose()
            self._head_is_gone()

    def _on_message(self, message: Message) -> None:
        kind = message["k"]
        if kind == "pong":
            self.link.pong(message)
            # one after another: pings in a row would measure their own queue
            if len(self.link.clock) < PINGS:
                self.link.ping()
            elif len(self.link.clock) == PINGS:
                self.link.send({"k": "ready", **self._clock()})
        elif kind == "start":
            if not self.stopping:
                self.start(message)
        elif kind == "stop":
            self.stop(float(message.get("grace_s", TERM_GRACE_S)))
        elif kind == "signal":
            for rank in self.ranks:
                rank.signal_alone(signal.Signals[message["signal"]])
        elif kind == "tail":
            lines = next((rank.tail.lines() for rank in self.ranks if rank.rank == message["rank"]), [])
            self.link.send({"k": "tail", "rank": message["rank"], "lines": lines})
        elif kind == "end":
            self.over = True

    def _on_signal(self, number: signal.Signals) -> None:
        if number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self.link.send({"k": "terminated", "signal": number.name})
            self.stop(TERM_GRACE_S)
            self.leave_at = time.monotonic() + TERM_GRACE_S + FAREWELL_S

    def _head_is_gone(self) -> None:
        """No head, no record: nothing that this node could still do would be of use."""
        print(f"{self.node}: the head is gone; ending the ranks", file=sys.stderr, flush=True)
        self.over = True

    def stop(self, grace_s: float) -> None:
        """End the ranks: SIGTERM now, SIGKILL after the grace."""
        if self.stopping:
            return
        self.stopping = True
        self.link.send({"k": "stopping"})
        self.kill_at = time.monotonic() + grace_s
        for rank in self.ranks:
            if rank.exit is None:
                rank.signal_group(signal.SIGTERM)

    # -- ranks -------------------------------------------------------------------------------------------------------

    def _drain(self, rank: Rank, limit: int = 16) -> None:
        """Read what a rank has printed; `limit` reads at a time, so that every pipe has its turn."""
        assert self.collector is not None
        for _ in range(limit):
            data = rank.read()
            if data is None:
                self._close_output(rank)
                return
            if not data:
                return
            self.progress += 1
            if rank.rank == 0:
                self.console.feed(data)
                self.collector.output(data, time.monotonic_ns())

    def _close_output(self, rank: Rank) -> None:
        if rank.output >= 0:
            self.selector.unregister(rank.output)
            os.close(rank.output)
            rank.output = -1

    def _reap(self) -> None:
        for rank in self.ranks:
            if not rank.reap():
                continue
            assert rank.exit is not None
            if rank.output >= 0:
                self._drain(rank, limit=1 << 16)
            self.guard.ended(rank.pid)
            if self.stopping or rank.exit.failed:
                # its workers must not outlive it; what a finished rank has left may take until all ranks have ended
                rank.signal_group(signal.SIGKILL)
            self._look()
            self.link.send(self._exit(rank.rank, rank.exit.code, rank.exit.signal, rank.exit.at_ns, rank.tail.last()))

    def _exit(self, rank: int, code: int | None, number: int | None, at_ns: int, last: str) -> Message:
        after = oom_kills() if number == signal.SIGKILL else None
        return {
            "k": "exit",
            "rank": rank,
            "code": code,
            "signal": number,
            "t_ns": at_ns,
            "offset_ns": self._offset(),
            "last": last[:300],
            "oom": after is not None and self.oom_before is not None and after > self.oom_before,
            "stopped": self.stopping,
        }

    # -- time --------------------------------------------------------------------------------------------------------

    def _on_time(self, now: float) -> None:
        if self.kill_at is not None and now >= self.kill_at:
            for rank in self.ranks:
                if rank.exit is None:
                    rank.signal_group(signal.SIGKILL)
        if self.leave_at is not None and now >= self.leave_at:
            self.over = True
        if self._due("console", now, CONSOLE_S):
            self._send_console()
        if self._due("look", now, LOOK_S):
            self._look()
        if self._due("data", now, self.interval_s):
            self._send_data()
        if self._due("ping", now, PING_S) and not self.idle:
            self.link.ping()
        launched = self.collector is not None or self.stopping
        if launched and not self.idle and all(rank.exit is not None for rank in self.ranks):
            self._finish()

    def _due(self, timer: str, now: float, every_s: float) -> bool:
        if now < self._timers[timer]:
            return False
        self._timers[timer] = now + every_s
        return True

    def _look(self) -> bool:
        if self.collector is None or not self.collector.look(time.monotonic_ns()):
            return False
        self.progress += 1
        return True

    def _send_console(self) -> None:
        start, skipped, rest = self.console.take()
        if start or skipped or rest:
            message = {"k": "console", "start": to_text(start), "skipped": skipped, "rest": to_text(rest)}
            self.link.send_data(message, len(start) + len(rest))

    def _send_data(self) -> None:
        message = self.collector.message(self._offset()) if self.collector is not None else None
        rows = 0 if message is None else sum(len(message[key]) for key in ("windows", "epochs", "events"))
        self.link.send_data((message or {"k": "data"}) | {"progress": self.progress}, rows * ROW_BYTES)

    def _offset(self) -> int:
        return self.link.clock.best.offset_ns

    def _clock(self) -> dict[str, Any]:
        best = self.link.clock.best
        return {"wall_offset_ns": best.wall_offset_ns, "rtt_ns": best.rtt_ns}

    # -- end ---------------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """All ranks have ended: the last data, nothing left behind, and then wait for the head's `end`."""
        self.idle = True
        self.clean(keep_folder=True)
        while self._look():
            self._send_data()
        if self.collector is not None:
            self.collector.close(time.monotonic_ns())
        self._send_console()
        self._send_data()
        dropped = self.link.bytes_dropped + (self.collector.bytes_dropped if self.collector else 0)
        last_steps = self.collector.last_steps() if self.collector else {}
        self.clean()
        self.link.send({"k": "idle", "bytes_dropped": dropped, "last_steps": last_steps, **self._clock()})

    def clean(self, *, keep_folder: bool = False) -> None:
        """End everything that the ranks have started; remove the folder."""
        for rank in self.ranks:
            if rank.exit is None:
                rank.signal_group(signal.SIGKILL)
        if self.folder is not None:
            kill_marked(os.fspath(self.folder.path), frozenset({self.guard.pid}))
        for rank in self.ranks:
            if rank.output >= 0 and rank.exit is not None:
                self._drain(rank, limit=1 << 16)
                self._close_output(rank)
        if self.folder is not None and not keep_folder:
            self.folder.remove()


def main() -> int:
    """Run the agent that the environment describes."""
    no_core_dumps()
    addresses = os.environ.get(rankenv.HEAD_VARIABLE, "").split(",")
    token = os.environ.pop(rankenv.TOKEN_VARIABLE, "")
    if not token or not addresses[0]:
        print(f"{sys.argv[0]}: started by the head only (${rankenv.HEAD_VARIABLE} is unset)", file=sys.stderr)
        return 2
    node_rank = int(os.environ.get(rankenv.NODE_VARIABLE) or os.environ.get("SLURM_NODEID") or 0)
    node = hostinfo.node_name(node_rank)
    guard = Guard()
    wakeup = Wakeup((signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR2))
    try:
        deadline = time.monotonic() + float(os.environ.get(rankenv.START_VARIABLE, "300"))
        link = HeadLink(connect(addresses, deadline))
    except NoHead as error:
        print(f"{node}: {error}", file=sys.stderr)
        guard.dismiss()
        return 1
    agent = Agent(link, node, node_rank, guard, wakeup)
    try:
        agent.hello(token)
        agent.run()
    except FrameError as error:
        print(f"{node}: {error}", file=sys.stderr)
    finally:
        agent.clean()
        guard.dismiss()
    return 0


if __name__ == "__main__":
    sys.exit(main())
