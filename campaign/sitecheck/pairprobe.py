"""What two nodes find out together: names, TCP, a shared folder.

Standard library only (Python 3.8 and later), copied into the probe's folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import statistics
import struct
import time
from pathlib import Path
from typing import Any

Spec = Any
"""The probe's specification, as probe.json holds it."""
ANSWER_S = 20.0
SHARED_S = 15.0
PAIR_DEADLINE_S = 40.0
LISTEN_S = 30.0
CONNECT_S = 3.0
FIRST_S = 12.0
"""How long a name is tried until one has answered: nodes don't start at the same moment."""
SIZES = ((8, 200), (16 * 2**20, 5))
"""(bytes, round trips) of the two messages."""
STOP = 2**64 - 1


def interface_address(name: str) -> str | None:
    """IPv4 address of an interface; None without one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            answer = fcntl.ioctl(sock, 0x8915, struct.pack("256s", name.encode()[:15]))
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])


def interfaces() -> dict[str, str | None]:
    """Every interface of this network namespace with its IPv4 address."""
    return {name: interface_address(name) for name in sorted(path.name for path in Path("/sys/class/net").iterdir())}


def interface_of(address: str) -> str | None:
    """The interface that carries an address."""
    return next((name for name, own in interfaces().items() if own == address), None)


def serve(spec: Spec, port: int) -> dict[str, Any]:
    """The first node's side: echo what others send, until one of them says stop."""
    reached: list[dict[str, Any]] = []
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("", port))
        server.listen(8)
        server.settimeout(LISTEN_S)
        stopped = False
        while not stopped:
            client, peer = server.accept()
            # whoever else finds this port must not end the check
            with client, contextlib.suppress(OSError):
                client.settimeout(ANSWER_S)
                if receive(client, len(spec["token"])) != spec["token"].encode():
                    continue
                client.sendall(b"o")
                local = client.getsockname()[0]
                reached.append({"peer": peer[0], "local": local, "interface": interface_of(local)})
                stopped = echo(client)
    return {"role": "server", "reached": reached}


def echo(client: socket.socket) -> bool:
    """Send back each message. True: the other side wants no more of it."""
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        size = int.from_bytes(receive(client, 8), "big")
        if size in (0, STOP):
            return size == STOP
        client.sendall(receive(client, size))


def receive(sock: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes. Raises OSError when the other side closes before."""
    buffer = bytearray(size)
    view = memoryview(buffer)
    done = 0
    while done < size:
        count = sock.recv_into(view[done:])
        if count == 0:
            raise OSError("the connection was closed")
        done += count
    return bytes(buffer)


def connect(spec: Spec, name: str, port: int, patience_s: float) -> tuple[socket.socket | None, dict[str, Any]]:
    """(connection or None, report) to a name of the first node; tried again for `patience_s`."""
    report: dict[str, Any] = {"name": name, "address": None, "reached": False, "error": None}
    end = time.monotonic() + patience_s
    while True:
        try:
            report["address"] = socket.getaddrinfo(name, port, socket.AF_INET, socket.SOCK_STREAM)[0][4][0]
            sock = socket.create_connection((report["address"], port), timeout=CONNECT_S)
            sock.settimeout(ANSWER_S)
            sock.sendall(spec["token"].encode())
            if receive(sock, 1) != b"o":
                raise OSError("another program answered")
            report["reached"], report["error"] = True, None
            local = sock.getsockname()[0]
            report["local"], report["interface"] = local, interface_of(local)
            return sock, report
        except (OSError, UnicodeError) as error:  # a name that is too long isn't even looked up
            report["error"] = str(error)
        if report["address"] is None or time.monotonic() > end:
            return None, report
        time.sleep(0.2)


def call(spec: Spec, head: str, port: int) -> dict[str, Any]:
    """The second node's side: the name with the site's suffix, the plain one, and two sizes of messages."""
    name, dot, domain = head.partition(".")
    names = list(dict.fromkeys([name + spec["suffix"] + dot + domain, head]))
    reports: list[dict[str, Any]] = []
    sizes: list[dict[str, Any]] = []
    measured: str | None = None
    for index, candidate in enumerate(names):
        sock, report = connect(spec, candidate, port, FIRST_S if measured is None else 0.0)
        reports.append(report)
        if sock is None:
            continue
        with sock:
            if measured is None:
                measured = candidate
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sizes = [ping(sock, size, rounds) for size, rounds in SIZES]
            last = index == len(names) - 1
            sock.sendall(struct.pack("!Q", STOP if last else 0))
    if measured is not None and not reports[-1]["reached"]:
        sock, _ = connect(spec, measured, port, 0.0)
        if sock is not None:
            with sock:
                sock.sendall(struct.pack("!Q", STOP))
    return {"role": "client", "names": reports, "over": measured, "way": "plain TCP sockets", "sizes": sizes}


def ping(sock: socket.socket, size: int, rounds: int) -> dict[str, Any]:
    """Round trips of one message size: the median, and what it means in bytes per second, one way."""
    message = struct.pack("!Q", size) + b"x" * size
    times = []
    for turn in range(rounds + 1):
        start = time.perf_counter()
        sock.sendall(message)
        receive(sock, size)
        if turn:  # the first one opens the connection's window
            times.append(time.perf_counter() - start)
    median = statistics.median(times)
    return {"bytes": size, "round_trips": rounds, "latency_s": median / 2, "bytes_per_s": 2 * size / median}


def shared(spec: Spec, rank: int) -> dict[str, Any]:
    """Each node writes a file into the probe's folder of the run root, and waits for those of the others."""
    folder = Path(spec["folder"]) / "exchange"
    folder.mkdir(exist_ok=True)
    new = folder / f"node{rank}.new"
    with new.open("w") as file:
        file.write(spec["token"])
        file.flush()
        os.fsync(file.fileno())
    new.rename(folder / f"node{rank}")
    wanted = {f"node{other}" for other in range(spec["nodes"])}
    start = time.monotonic()
    seen: set[str] = set()
    while seen < wanted and time.monotonic() < start + SHARED_S:
        # the folder is listed each time: a client may remember for a while that a file wasn't there
        for path in folder.iterdir():
            with contextlib.suppress(OSError):
                if path.name in wanted and path.read_text() == spec["token"]:
                    seen.add(path.name)
        if seen < wanted:
            time.sleep(0.05)
    return {"shared": seen == wanted, "missing": sorted(wanted - seen), "seconds": time.monotonic() - start}
