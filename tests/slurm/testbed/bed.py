"""The test bed as one thing: start, stop, drills, and commands against its clusters."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import shutil
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.slurm.testbed import config, memory
from tests.slurm.testbed.cluster import Cluster
from tests.slurm.testbed.clusters import CLUSTERS
from tests.slurm.testbed.config import Layout
from tests.slurm.testbed.network import Network, claim, links
from tests.slurm.testbed.nodes import Nodes
from tests.slurm.testbed.processes import PidFiles
from tests.slurm.testbed.services import START_S, Services
from tests.slurm.testbed.settings import Settings
from tests.waiting import wait_for


class TestbedError(RuntimeError):
    """The bed can't be started, or isn't there."""

    __test__ = False


class Testbed:
    """One bed, running or not. Cheap to create; methods that change something need root."""

    __test__ = False

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings.from_environment()
        root = self.settings.root
        self.layout = Layout(root)
        self.pids = PidFiles(self.layout.run)
        state = self._state()
        if state is not None:
            # the bed that runs is what its starter made it
            self.settings = dataclasses.replace(Settings.from_json(state["settings"]), root=root)

    # --- what there is

    def _state(self) -> dict[str, Any] | None:
        root = self.settings.root
        if root.exists() and root.stat().st_uid not in (0, os.geteuid()):
            # in /tmp anybody may have made it; we delete folders and kill processes by what it says
            raise TestbedError(f"{root} belongs to another user; name another folder in $TESTBED_ROOT")
        try:
            state: dict[str, Any] = json.loads(self.layout.state_file.read_text())
        except FileNotFoundError:
            return None
        return state

    @property
    def network(self) -> Network:
        """Addresses and ports of the bed that exists."""
        state = self._state()
        if state is None:
            raise TestbedError(f"there is no test bed at {self.settings.root}; `make testbed` starts one")
        return Network(state["network"])

    @property
    def services(self) -> Services:
        """munge, database and controllers."""
        return Services(self.settings, self.network, self.pids)

    @property
    def nodes(self) -> Nodes:
        """The compute nodes."""
        state = self._state() or {}
        cgroup = state.get("memory_cgroup")
        return Nodes(self.settings, self.network, self.pids, Path(cgroup) if cgroup else None)

    @property
    def expected(self) -> list[str]:
        """Names of all processes of a whole bed."""
        controllers = [f"slurmctld-{cluster}" for cluster in self.settings.clusters]
        return ["munged", "mariadbd", "slurmdbd", *controllers, *(node.service for node in self.nodes.all())]

    @property
    def exists(self) -> bool:
        """True when somebody has started a bed here, whole or not."""
        return self._state() is not None

    def serves(self, settings: Settings) -> bool:
        """True when this bed is what `settings` ask for; it may let more users in and show more folders."""
        ours = self.settings
        same = dataclasses.replace(settings, users=ours.users, keep=ours.keep) == ours
        visible = all(any(path == seen or seen in path.parents for seen in ours.keep) for path in settings.keep)
        return same and visible and set(settings.users) <= set(ours.users)

    @property
    def by_hand(self) -> bool:
        """True when a person started it: tests leave it running."""
        return self._hand_file.exists()

    def mark_by_hand(self) -> None:
        """From now on only a person stops it."""
        self._hand_file.touch()

    @property
    def _hand_file(self) -> Path:
        return self.layout.run / "by-hand"

    @property
    def complete(self) -> bool:
        """True when it was started and every process lives."""
        state = self._state()
        return state is not None and state["ready"] and not self.dead

    @property
    def dead(self) -> list[str]:
        """Processes that should be there and aren't."""
        return [name for name in self.expected if self.pids.process(name) is None]

    @property
    def start_s(self) -> float:
        """Seconds from nothing to all nodes idle."""
        return float((self._state() or {}).get("start_s", math.nan))

    @property
    def memory_limits(self) -> bool:
        """True when jobs are held to their memory (OUT_OF_MEMORY is real)."""
        return bool((self._state() or {}).get("memory_cgroup"))

    def cluster(self, name: str) -> Cluster:
        """One cluster of the running bed."""
        if name not in self.settings.clusters:
            raise ValueError(f"no cluster {name!r} in this bed: {', '.join(self.settings.clusters)}")
        nodes = CLUSTERS[name].nodes(self.settings.nodes_per_cluster)
        return Cluster(name, self.layout.slurm_conf(name), nodes, self.layout.shared)

    @property
    def clusters(self) -> list[Cluster]:
        """All clusters."""
        return [self.cluster(name) for name in self.settings.clusters]

    # --- start and stop

    def start(self, say: Callable[[str], None] = lambda text: None) -> None:
        """Start everything that isn't there; returns when all nodes are idle. `say` gets a line per step.

        A bed of the same settings that runs whole is left as it is. Raises TestbedError.
        """
        if self.complete:
            say(f"runs already: {self.settings.root}")
            return
        self.stop()
        begin = time.monotonic()

        def lap(step: str) -> None:
            say(f"{time.monotonic() - begin:6.2f} s  {step}")

        try:
            self._start(lap)
            ready = {"ready": True, "start_s": round(time.monotonic() - begin, 2)}
            self._write_state((self._state() or {}) | ready)
        except BaseException as error:
            # leave the logs of a failed start for whoever looks, but nothing that runs
            with contextlib.suppress(OSError, RuntimeError):
                self._halt()
            if isinstance(error, (RuntimeError, OSError)):
                raise TestbedError(f"the test bed didn't start: {error}\nlogs: {self.layout.logs}") from error
            raise

    def _start(self, lap: Callable[[str], None]) -> None:
        settings, layout = self.settings, self.layout
        net = claim(settings.root)
        cgroup = memory.create(net.bridge) if settings.memory_limits else None
        # first of all what `stop` needs to know
        settings.root.mkdir(parents=True, exist_ok=True)
        self._write_state({"network": net.number, "memory_cgroup": cgroup and str(cgroup), "ready": False})
        layout.make(settings.clusters)
        self._write_configuration(net, memory_limits=cgroup is not None)
        services, nodes = self.services, self.nodes
        services.start_database()
        services.start_munge()
        lap("munge")
        # slurmd waits for its controller, so the nodes boot while the database does
        nodes.up(nodes.all())
        lap(f"{len(nodes.all())} nodes booted")
        services.database_ready()
        lap("database")
        services.start_dbd()
        lap("slurmdbd")
        services.create_accounts()
        lap("accounts")
        for name in settings.clusters:
            services.start_ctld(name)
        for cluster in self.clusters:
            self._wait_idle(cluster)
            lap(f"{cluster.name}: {len(cluster.nodes)} nodes idle")

    def _write_state(self, state: dict[str, Any]) -> None:
        text = json.dumps(state | {"settings": self.settings.to_json()}, indent=1)
        new = self.layout.state_file.with_suffix(".new")
        new.write_text(text + "\n")
        new.rename(self.layout.state_file)

    def _write_configuration(self, net: Network, *, memory_limits: bool) -> None:
        settings, layout = self.settings, self.layout
        for number in range(4):
            # the GPUs' device files: /dev/null under another name
            gpu = layout.root / "dev" / f"gpu{number}"
            os.mknod(gpu, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
            gpu.chmod(0o666)
        layout.dbd_conf.touch(mode=0o600)
        layout.dbd_conf.write_text(config.slurmdbd_conf(layout, net))
        specs = [CLUSTERS[name] for name in settings.clusters]
        (layout.root / "etc" / "hosts").write_text(config.hosts(settings, net, specs))
        (layout.root / "etc" / "resolv.conf").touch()
        for spec in specs:
            folder = layout.slurm_conf(spec.name).parent
            text = config.slurm_conf(spec, settings, net, memory_limits=memory_limits)
            (folder / "slurm.conf").write_text(text)
            (folder / "gres.conf").write_text(config.gres_conf(spec, settings))
            (folder / "cgroup.conf").write_text(config.cgroup_conf())

    def _wait_idle(self, cluster: Cluster) -> None:
        def idle() -> bool:
            dead = self.dead
            if dead:
                raise RuntimeError(f"ended while starting: {', '.join(dead)}")
            states = cluster.node_states()
            return set(states) == set(cluster.nodes) and set(states.values()) == {"idle"}

        wait_for(idle, START_S, what=lambda: f"nodes of {cluster.name}: {cluster.node_states() or 'no answer'}")

    def stop(self) -> None:
        """End every process and remove every trace, `root` included. Nothing to do: nothing happens.

        Raises TestbedError when `root` holds something that no bed has made.
        """
        root = self.settings.root
        if self._state() is None:
            if root.exists() and any(root.iterdir()):
                raise TestbedError(f"{root} isn't a test bed; name an empty or new folder in $TESTBED_ROOT")
            return
        self._halt()
        shutil.rmtree(root)

    def _halt(self) -> None:
        state = self._state()
        if state is None:
            return
        # everything is thrown away, so nobody needs time to save something
        self.pids.stop(self.pids.names(), signal.SIGKILL)
        net = Network(state["network"])
        if links().get(net.bridge) == str(self.settings.root):
            net.remove()
        if state["memory_cgroup"]:
            memory.remove(net.bridge)

    # --- drills

    def node_kill(self, cluster: str, node: str) -> None:
        """A node loses power. Slurm notices after SlurmdTimeout."""
        self.nodes.kill([self.nodes.find(cluster, node)])

    def node_up(self, cluster: str, node: str, *, wait: bool = True) -> None:
        """Switch a node on again; `wait` until Slurm calls it idle or gives it work."""
        self.nodes.up([self.nodes.find(cluster, node)])
        if wait:
            good = ("idle", "mixed", "allocated")
            self._wait_node(cluster, node, lambda state: state in good)

    def link_down(self, cluster: str, node: str) -> None:
        """Unplug a node: its processes go on, nobody reaches it."""
        self.nodes.link(self.nodes.find(cluster, node), up=False)

    def link_up(self, cluster: str, node: str) -> None:
        """Plug a node in again."""
        self.nodes.link(self.nodes.find(cluster, node), up=True)

    def ctld_stop(self, cluster: str) -> None:
        """End a controller in order: it saves its state."""
        self.pids.stop([f"slurmctld-{cluster}"], signal.SIGTERM)

    def ctld_kill(self, cluster: str) -> None:
        """Kill a controller: what it hasn't saved (about the last second) is lost."""
        self.pids.stop([f"slurmctld-{cluster}"], signal.SIGKILL)

    def ctld_start(self, cluster: str) -> None:
        """Start a controller that was stopped; returns when it answers."""
        if self.pids.process(f"slurmctld-{cluster}") is None:
            self.services.start_ctld(cluster)
        self.services.ctld_ready(cluster)

    def dbd_stop(self) -> None:
        """End slurmdbd: sacct fails, sbatch and squeue go on."""
        self.pids.stop(["slurmdbd"], signal.SIGTERM)

    def dbd_start(self) -> None:
        """Start slurmdbd again; returns when its port is open."""
        if self.pids.process("slurmdbd") is None:
            self.services.start_dbd()

    def _wait_node(self, cluster: str, node: str, good: Callable[[str], bool]) -> None:
        target = self.cluster(cluster)
        wait_for(
            lambda: good(target.node_states().get(node, "")),
            what=lambda: f"node {node} is {target.node_states().get(node)}",
        )

    def wait_node(self, cluster: str, node: str, *states: str) -> None:
        """Wait until Slurm calls a node one of `states`, with or without the mark that it doesn't answer (`down*`)."""
        self._wait_node(cluster, node, lambda state: state.rstrip("*") in states)
