"""Frames, the hub, clocks, addresses: over real sockets."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaign.job.clock import ClockOffset, JobClock, process_start_ticks
from campaign.job.frames import MAX_HELLO_BYTES, Decoder, FrameError, FrameSocket, Message, encode
from campaign.job.headlink import NoHead, connect
from campaign.job.hub import Hub, Peer
from campaign.job.network import interface_address, reserve_port, with_suffix
from campaign.job.processes import many_files
from tests.needs import needs
from tests.waiting import wait_for

JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3), max_leaves=5
)


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.text(max_size=5), JSON, max_size=3), max_size=5), st.integers(1, 50))
def test_frames_come_whole_however_they_are_cut(messages: list[Message], size: int) -> None:
    data = b"".join(encode(message) for message in messages)
    decoder = Decoder()
    found = [message for at in range(0, len(data), size) for message in decoder.feed(data[at : at + size])]
    assert found == messages


@pytest.mark.parametrize(
    "data",
    [struct.pack(">I", 1 << 30), struct.pack(">I", 3) + b"abc", struct.pack(">I", 2) + b"[]", b"GET / HTTP/1.1\r\n"],
    ids=["huge", "no JSON", "no object", "HTTP"],
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        Decoder().feed(data)


class Served:
    """A hub that is polled in a thread, with what it heard."""

    def __init__(self, nodes: int = 2) -> None:
        self.log: list[str] = []
        self.heard: list[tuple[int | None, Message]] = []
        self.gone: list[int | None] = []
        self.hub = Hub("secret", nodes, interface=None, local=True, log=self.log.append)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._end.is_set():
            self.hub.poll(0.02, self._on_message, lambda peer: self.gone.append(peer.node_rank))

    def _on_message(self, peer: Peer, message: Message) -> None:
        self.heard.append((peer.node_rank, message))
        if message.get("k") == "echo":
            self.hub.send(peer, message)

    def connect(self) -> FrameSocket:
        host, _, port = self.hub.addresses[0].rpartition(":")
        return FrameSocket(socket.create_connection((host, int(port))))

    def agent(self, rank: object, token: str = "secret") -> FrameSocket:
        peer = self.connect()
        peer.send({"k": "hello", "token": token, "node_rank": rank})
        return peer

    def close(self) -> None:
        self._end.set()
        self._thread.join()
        self.hub.close()


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.close()


def receive(peer: FrameSocket) -> Message:
    found: list[Message] = []

    def some() -> bool:
        found.extend(peer.receive())
        return bool(found) or peer.closed

    wait_for(some)
    assert found, "the connection was closed"
    return found[0]


def closed(peer: FrameSocket) -> bool:
    peer.receive()
    return peer.closed


def test_agents_are_heard_and_answered(served: Served) -> None:
    first, second = served.agent(0), served.agent(1)
    first.send({"k": "echo", "x": "y" * 3_000_000})
    answer: list[Message] = []

    def got() -> bool:
        first.write()
        answer.extend(first.receive())
        return bool(answer)

    wait_for(got)
    assert len(answer[0]["x"]) == 3_000_000
    second.dispose()
    wait_for(lambda: served.gone == [1])
    first.dispose()


def test_strangers_are_shown_the_door(served: Served) -> None:
    for rank, token, reason in (
        (0, "guess", "no hello with the token"),
        (7, "secret", "node rank 7 is not expected"),
        ("0; drop", "secret", "node rank '0; drop' is not expected"),
    ):
        peer = served.agent(rank, token)
        wait_for(lambda peer=peer: closed(peer))
        assert reason in served.log[-1]
        peer.dispose()
    noisy = served.connect()
    noisy.sock.setblocking(True)
    noisy.sock.sendall(struct.pack(">I", MAX_HELLO_BYTES + 1))
    noisy.sock.setblocking(False)
    wait_for(lambda: closed(noisy))
    noisy.dispose()
    agent = served.agent(0)
    wait_for(lambda: served.heard)
    twice = served.agent(0)
    wait_for(lambda: closed(twice))
    twice.dispose()
    agent.dispose()
    assert [message["k"] for _, message in served.heard] == ["hello"]
    assert not any("secret" in line for line in served.log)


def test_a_thousand_agents() -> None:
    many_files()  # as the head does: both ends of all connections are open here
    many = Served(nodes=1000)
    try:
        agents = [many.agent(rank) for rank in range(1000)]
        for agent in agents:
            agent.send({"k": "ping", "t": 1})
        for agent in agents:
            assert receive(agent)["k"] == "pong"
        assert len(many.hub.peers) == 1000
        for agent in agents:
            agent.dispose()
        wait_for(lambda: len(many.gone) == 1000)
    finally:
        many.close()


def test_the_offset_is_that_of_the_quickest_ping() -> None:
    clock = ClockOffset()
    assert clock.best.offset_ns == 0
    ahead_ns = 5_000_000_000
    for delay_s in (0.02, 0.0, 0.01):
        sent = time.monotonic_ns()
        head_ns = time.monotonic_ns() + ahead_ns
        head_wall_ns = time.time_ns() - ahead_ns
        # all the delay on the way back: the worst case for NTP's assumption
        time.sleep(delay_s)
        clock.add(sent, head_ns, head_wall_ns)
    assert abs(clock.best.offset_ns - ahead_ns) < 5_000_000
    assert abs(clock.best.wall_offset_ns + ahead_ns) < 5_000_000
    assert clock.best.rtt_ns < 10_000_000


def test_a_jobs_clock_begins_with_its_process() -> None:
    code = (
        "import json, time; from campaign.job.clock import JobClock; "
        "c = JobClock.of_process(); print(json.dumps([c.started, c.elapsed_s(), c.t_us()]))"
    )
    before = time.time()
    started, elapsed_s, t_us = json.loads(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    )
    # the kernel counts process starts in ticks of 10 ms
    assert before - 0.03 < started < time.time()
    assert 0 < elapsed_s < time.time() - before + 0.03
    assert t_us >= elapsed_s * 1e6
    assert JobClock.now().elapsed_s() < 60


def test_a_process_is_known_by_its_start() -> None:
    own = process_start_ticks(os.getpid())
    assert own is not None
    assert own == process_start_ticks(os.getpid())
    child = subprocess.Popen(["true"])
    child.wait()
    assert process_start_ticks(child.pid) in (None, process_start_ticks(child.pid))
    assert process_start_ticks(2**22 + 1) is None


@pytest.mark.parametrize(
    ("host", "suffix", "name"),
    [
        ("jwb0001", "i", "jwb0001i"),
        ("jwb0001.juwels", "i", "jwb0001i.juwels"),
        ("gn01", None, "gn01"),
        ("gn01", "", "gn01"),
    ],
)
def test_the_suffix_of_fast_interfaces(host: str, suffix: str | None, name: str) -> None:
    assert with_suffix(host, suffix) == name


def test_interfaces() -> None:
    assert interface_address("lo") == "127.0.0.1"
    assert interface_address("no-such-one") is None


@needs("network-namespaces")
def test_the_head_listens_on_the_sites_interface_and_says_so_when_it_has_no_address() -> None:
    code = """
        import sys
        from campaign.job.hub import Hub
        for name in ("fast0", "down0"):
            hub = Hub("t", 1, interface=name, local=False, log=print)
            print(hub.addresses[0].rpartition(":")[0])
    """
    script = (
        "ip link set lo up; ip link add fast0 type veth peer name down0; ip addr add 10.9.8.7/24 dev fast0; "
        'ip link set fast0 up; exec "$0" -c "$1"'
    )
    answer = subprocess.run(
        ["unshare", "-n", "sh", "-ec", script, sys.executable, textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    lines = answer.stdout.splitlines()
    assert lines[0] == "10.9.8.7", answer.stderr
    assert lines[1] == "network interface down0 has no IPv4 address here; agents connect by host name"


def test_ports_are_free_and_held() -> None:
    first, holder = reserve_port("1000001")
    second, other = reserve_port("1000001")
    assert first != second
    assert {20000 <= port < 32000 for port in (first, second)} == {True}
    holder.close()
    again, third = reserve_port("1000001")
    assert again == first
    for sock in (other, third):
        sock.close()


def test_a_head_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(NoHead, match=f"127.0.0.1:{port}: .*refused"):
        connect([f"127.0.0.1:{port}"], time.monotonic() + 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        good = server.getsockname()[1]
        addresses: list[Any] = [f"127.0.0.1:{port}", f"127.0.0.1:{good}"]
        connect(addresses, time.monotonic() + 30).close()
