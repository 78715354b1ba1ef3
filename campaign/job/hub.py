"""The head's side of the network: accepts agents, checks their token, passes on what they say."""

from __future__ import annotations

import hmac
import selectors
import socket
import time
from collections.abc import Callable
from typing import Any

from campaign.job.frames import MAX_FRAME_BYTES, MAX_HELLO_BYTES, FrameError, FrameSocket, Message
from campaign.job.network import interface_address, resolve

HELLO_S = 30.0
"""A connection that hasn't shown the token by then is closed."""
STRANGERS = 64
"""Connections without token that may be open beyond the agents we wait for."""


class Peer(FrameSocket):
    """One connection; an agent once its hello has been accepted."""

    def __init__(self, sock: socket.socket, address: str) -> None:
        super().__init__(sock, limit=MAX_HELLO_BYTES)
        self.address = address
        self.since = time.monotonic()
        self.node_rank: int | None = None
        self.registered = 0


class Hub:
    """One listening socket and its peers, all in the caller's selector loop."""

    def __init__(
        self, token: str, nodes: int, *, interface: str | None, local: bool, log: Callable[[str], None]
    ) -> None:
        """Listen. `local`: on the loopback only; else on the interface's address, or on all when it has none."""
        self._token = token
        self._nodes = nodes
        self._log = log
        self.peers: dict[int, Peer] = {}
        """Accepted agents by node rank."""
        self._strangers: set[Peer] = set()
        self.selector = selectors.DefaultSelector()
        hosts: list[str] = []
        bind = ""
        if local:
            hosts, bind = ["127.0.0.1"], "127.0.0.1"
        else:
            address = interface_address(interface) if interface else None
            if interface and address is None:
                log(f"network interface {interface} has no IPv4 address here; agents connect by host name")
            if address:
                hosts, bind = [address], address
            else:
                name = socket.gethostname()
                hosts = [host for host in (name, resolve(name)) if host and not host.startswith("127.")]
        self._server = socket.create_server((bind, 0), backlog=4096)
        self._server.setblocking(False)
        port = self._server.getsockname()[1]
        self.addresses = [f"{host}:{port}" for host in hosts]
        """Where agents find us: `host:port`, the best first."""
        self.selector.register(self._server, selectors.EVENT_READ, self._server)

    def poll(
        self, timeout: float, on_message: Callable[[Peer, Message], None], on_gone: Callable[[Peer], None]
    ) -> list[Any]:
        """Wait for traffic and pass it on. Returns the data of other descriptors registered with `selector`."""
        others: list[Any] = []
        for key, events in self.selector.select(timeout):
            if key.data is self._server:
                self._accept()
            elif isinstance(key.data, Peer):
                self._serve(key.data, events, on_message, on_gone)
            else:
                others.append(key.data)
        self._drop_silent()
        return others

    def send(self, peer: Peer, message: Message) -> None:
        """Queue a message for a peer."""
        if not peer.closed:
            peer.send(message)
            self._watch(peer)

    def broadcast(self, message: Message) -> None:
        """Queue a message for every agent."""
        for peer in list(self.peers.values()):
            self.send(peer, message)

    def close(self) -> None:
        """Close everything."""
        for peer in [*self.peers.values(), *self._strangers]:
            self._forget(peer)
        self.selector.close()
        self._server.close()

    def flush(self, limit_s: float) -> None:
        """Write what is queued, for at most so long."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline and any(peer.queued_bytes for peer in self.peers.values()):
            self.poll(0.05, lambda peer, message: None, lambda peer: None)

    def _accept(self) -> None:
        for _ in range(256):
            try:
                sock, address = self._server.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._log(f"can't accept a connection: {error}")
                return
            if len(self._strangers) >= self._nodes - len(self.peers) + STRANGERS:
                sock.close()
                continue
            peer = Peer(sock, str(address[0]))
            self._strangers.add(peer)
            self._watch(peer)

    def _serve(
        self, peer: Peer, events: int, on_message: Callable[[Peer, Message], None], on_gone: Callable[[Peer], None]
    ) -> None:
        if events & selectors.EVENT_WRITE:
            peer.write()
        if events & selectors.EVENT_READ and not peer.closed:
            try:
                messages = peer.receive()
            except FrameError as error:
                self._log(f"connection from {peer.address} closed: {error}")
                messages = []
                peer.close()
            for message in messages:
                if peer.node_rank is None and not self._admit(peer, message):
                    break
                self._answer(peer, message, on_message)
        if peer.closed:
            was_agent = peer.node_rank is not None and self.peers.get(peer.node_rank) is peer
            self._forget(peer)
            if was_agent:
                on_gone(peer)
        else:
            self._watch(peer)

    def _admit(self, peer: Peer, hello: Message) -> bool:
        """Whether a peer's first message is the hello of an agent of this job."""
        self._strangers.discard(peer)
        token, rank = hello.get("token"), hello.get("node_rank")
        if hello.get("k") != "hello" or not hmac.compare_digest(str(token).encode(), self._token.encode()):
            self._log(f"connection from {peer.address} refused: no hello with the token of this job")
        elif not isinstance(rank, int) or not 0 <= rank < self._nodes or rank in self.peers:
            self._log(f"connection from {peer.address} refused: node rank {rank!r} is not expected")
        else:
            peer.node_rank = rank
            peer.decoder.limit = MAX_FRAME_BYTES
            self.peers[rank] = peer
            return True
        peer.close()
        return False

    def _answer(self, peer: Peer, message: Message, on_message: Callable[[Peer, Message], None]) -> None:
        if message.get("k") == "ping":
            self.send(
                peer,
                {"k": "pong", "t": message["t"], "head_ns": time.monotonic_ns(), "head_wall_ns": time.time_ns()},
            )
        else:
            on_message(peer, message)

    def _watch(self, peer: Peer) -> None:
        if peer.closed:
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.queued_bytes else 0)
        if peer.registered == 0:
            self.selector.register(peer.sock, wanted, peer)
        elif peer.registered != wanted:
            self.selector.modify(peer.sock, wanted, peer)
        peer.registered = wanted

    def _forget(self, peer: Peer) -> None:
        if peer.registered:
            self.selector.unregister(peer.sock)
            peer.registered = 0
        peer.dispose()
        self._strangers.discard(peer)
        if peer.node_rank is not None and self.peers.get(peer.node_rank) is peer:
            del self.peers[peer.node_rank]

    def _drop_silent(self) -> None:
        now = time.monotonic()
        for peer in [peer for peer in self._strangers if now - peer.since > HELLO_S]:
            self._log(f"connection from {peer.address} closed: it did not say hello")
            self._forget(peer)
