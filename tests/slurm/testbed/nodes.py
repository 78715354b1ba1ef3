"""The compute nodes: each a PID 1 in its own mount, UTS, IPC, PID and network namespaces, with a slurmd."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.slurm.testbed.clusters import CLUSTERS, ClusterSpec
from tests.slurm.testbed.config import Layout
from tests.slurm.testbed.network import Network, ip_batch
from tests.slurm.testbed.processes import PidFiles, Process, tail
from tests.slurm.testbed.services import START_S, daemon_environment
from tests.slurm.testbed.settings import Settings
from tests.waiting import wait_for

NODE_INIT = Path(__file__).with_name("node-init.sh")
# SIGKILL to its PID 1 ends every process of a node at once, as a power failure would
UNSHARE = ("unshare", "-m", "-u", "-i", "-p", "-n", "-f", "--kill-child=SIGKILL", "--mount-proc")


@dataclass(frozen=True, slots=True)
class Node:
    """One node of one cluster."""

    spec: ClusterSpec
    number: int

    @property
    def name(self) -> str:
        """Its name in Slurm."""
        return self.spec.node_name(self.number)

    @property
    def hostname(self) -> str:
        """What `hostname` says on it."""
        return self.name + self.spec.domain

    @property
    def service(self) -> str:
        """Name of its pid file."""
        return f"node-{self.name}"


class Nodes:
    """All nodes of one bed."""

    def __init__(self, settings: Settings, network: Network, pids: PidFiles, memory_cgroup: Path | None) -> None:
        self.settings = settings
        self.network = network
        self.layout = Layout(settings.root)
        self.pids = pids
        self.memory_cgroup = memory_cgroup

    def all(self) -> list[Node]:
        """Every node, cluster by cluster."""
        numbers = range(1, self.settings.nodes_per_cluster + 1)
        return [Node(CLUSTERS[cluster], number) for cluster in self.settings.clusters for number in numbers]

    def find(self, cluster: str, name: str) -> Node:
        """The node called `name`. Raises ValueError, with the names there are."""
        for node in self.all():
            if node.spec.name == cluster and node.name == name:
                return node
        names = [node.name for node in self.all() if node.spec.name == cluster]
        raise ValueError(f"cluster {cluster!r} has no node {name!r}; it has {', '.join(names) or 'no nodes'}")

    def up(self, nodes: Iterable[Node]) -> None:
        """Switch on `nodes` that are off; returns when their network is there, before Slurm knows them."""
        fresh = [node for node in nodes if self.pids.process(node.service) is None]
        inits = [(node, self._boot(node)) for node in fresh]
        self.network.connect((self.network.veth(node.spec.number, node.number), init.pid) for node, init in inits)

    def _boot(self, node: Node) -> Process:
        spool = self.layout.spool(node.spec.name, node.name)
        spool.mkdir(parents=True, exist_ok=True)
        # slurmd leaves its socket behind when it is killed
        variables = {
            "NODE": node.name,
            "NODE_HOSTNAME": node.hostname,
            "NODE_ADDRESS": self.network.address(node.spec.number, node.number),
            "NODE_MANAGEMENT": "",
            "MANAGEMENT_NET": self.network.management_net,
            "SHM_MIB": str(self.settings.shm_mib),
            "MEMORY_CGROUP": str(self.memory_cgroup or ""),
            "KEEP": "\n".join(str(folder) for folder in self.settings.keep if folder.is_dir()),
            "SLURM_CONF": str(self.layout.slurm_conf(node.spec.name)),
        }
        if node.spec.fabric_suffix:
            variables["NODE_MANAGEMENT"] = self.network.management_address(node.spec.number, node.number)
        log = self.layout.logs / f"{node.service}.out"
        command = [*UNSHARE, "--propagation", "private", "/bin/bash", str(NODE_INIT)]
        outside = self.pids.start(node.service, command, log=log, env=daemon_environment(self.settings, **variables))

        def init() -> Process | None:
            if not outside.alive:
                raise RuntimeError(f"node {node.name} didn't start: {tail(log)}")
            children = Path(f"/proc/{outside.pid}/task/{outside.pid}/children").read_text().split()
            return Process.of(int(children[0])) if children else None

        process = wait_for(init, START_S, what=lambda: f"node {node.name}: {tail(log)}", interval=0.005)
        assert process is not None
        return process

    def kill(self, nodes: Iterable[Node]) -> None:
        """Power failure of `nodes`: every process gone, /tmp and /dev/shm with them."""
        self.pids.stop([node.service for node in nodes], signal.SIGKILL)

    def link(self, node: Node, *, up: bool) -> None:
        """Plug or unplug a node's cable, on the switch's side."""
        ip_batch([f"link set {self.network.veth(node.spec.number, node.number)} {'up' if up else 'down'}"])
