"""One bridge per bed, one veth pair per node. The bridge's number fixes the bed's addresses and ports.

Bed N: bridge `slurmtbN` with 198.18.N.1 (where the controllers listen), nodes 198.18.N.<10 * cluster + node>,
ports from 20000 + 8 N. 198.18.0.0/15 is set aside for tests of networks (RFC 2544), so no real network has it.
Creating a link fails when its name is taken: that makes the number ours without a lock.
"""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PREFIX = "slurmtb"
INTERFACE = "ib0"
"""The nodes' only interface: what the three sites call theirs."""


@dataclass(frozen=True, slots=True)
class Network:
    """Addresses, ports and link names of bed `number`."""

    number: int

    @property
    def bridge(self) -> str:
        """Name of the bridge; also of the bed's cgroup."""
        return f"{PREFIX}{self.number}"

    @property
    def login(self) -> str:
        """Address of the machine itself, as the nodes see it."""
        return f"198.18.{self.number}.1"

    def address(self, cluster: int, node: int) -> str:
        """Address of a node on ib0."""
        return f"198.18.{self.number}.{10 * cluster + node}"

    def management_address(self, cluster: int, node: int) -> str:
        """Address that only the node itself reaches."""
        return f"198.19.{self.number}.{10 * cluster + node}"

    @property
    def management_net(self) -> str:
        """All management addresses."""
        return f"198.19.{self.number}.0/24"

    @property
    def dbd_port(self) -> int:
        """slurmdbd's port."""
        return 20000 + 8 * self.number

    def ctld_port(self, cluster: int) -> int:
        """Port of a cluster's slurmctld."""
        return self.dbd_port + cluster

    def veth(self, cluster: int, node: int) -> str:
        """The host's end of a node's link."""
        return f"{PREFIX}{self.number}-{cluster}{node}"

    def connect(self, ends: Iterable[tuple[str, int]]) -> None:
        """Give the network namespace of each (veth name, pid) an interface ib0 on the bridge."""
        left, commands = links(), []
        for veth, pid in ends:
            if veth in left:
                _ip("link", "del", veth)  # of a node that was killed just now: the kernel removes it in its own time
            commands.append(f"link add {veth} type veth peer name {INTERFACE} netns {pid}")
            commands.append(f"link set {veth} master {self.bridge} up")
        ip_batch(commands)

    def remove(self) -> None:
        """Delete the bridge and whatever links of ours are left."""
        ours = [name for name in links() if name == self.bridge or name.startswith(f"{self.bridge}-")]
        for name in ours:
            _ip("link", "del", name)


def claim(root: Path) -> Network:
    """Make the bridge of a new bed at the first free number.

    Raises RuntimeError when the machine lets us make none.
    """
    for name, alias in links().items():
        if alias == str(root) and name.startswith(PREFIX):
            _ip("link", "del", name)  # left by a start that was killed
    error = "no number below 256 is free"
    for number in range(256):
        network = Network(number)
        made = _ip("link", "add", network.bridge, "type", "bridge")
        if made.returncode != 0:
            if network.bridge not in links():
                raise RuntimeError(f"can't create a bridge: {made.stderr.strip()}")
            continue
        bridge, login = network.bridge, network.login
        ip_batch(
            [
                f"link set {bridge} alias {root} up",
                f"addr add {login}/24 dev {bridge}",
                # slurmdbd's protocol writes length and message apart, so Nagle and delayed ACK make each answer wait
                # 40 ms; ACKs at once on this one address make sacct and sacctmgr twenty times faster
                f"route replace local {login} dev {bridge} table local proto kernel scope host src {login} quickack 1",
            ]
        )
        if all(_port_free(port) for port in range(network.dbd_port, network.dbd_port + 8)):
            return network
        error = f"a port of 20000 to {20000 + 8 * 256} is taken for each number"
        network.remove()
    raise RuntimeError(f"no network for the test bed: {error}")


def roots() -> list[str]:
    """The roots of all beds on this machine."""
    beds = {alias for name, alias in links().items() if name.startswith(PREFIX) and "-" not in name}
    return sorted(beds - {""})


def links() -> dict[str, str]:
    """Name and alias of every link of this machine."""
    answer = _ip("-j", "link", "show")
    return {link["ifname"]: link.get("ifalias", "") for link in json.loads(answer.stdout)}


def ip_batch(commands: list[str]) -> None:
    """Several `ip` commands in one process. Raises RuntimeError with what ip said."""
    answer = _ip("-batch", "-", stdin="\n".join(commands) + "\n")
    if answer.returncode != 0:
        raise RuntimeError(f"ip: {answer.stderr.strip()}")


def _ip(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *arguments], input=stdin, capture_output=True, text=True, check=False, timeout=30)


def _port_free(port: int) -> bool:
    with socket.socket() as probe:
        # the last bed's closed connections don't count
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True
