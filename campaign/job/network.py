"""Addresses: where agents find the head, where ranks find each other."""

from __future__ import annotations

import errno
import fcntl
import socket
import struct

_SIOCGIFADDR = 0x8915
FIRST_PORT = 20000
PORTS = 12000
"""Ports 20000 to 31999: below Linux's ephemeral range (32768), so no outgoing connection sits on one."""


def interface_address(interface: str) -> str | None:
    """The IPv4 address of a network interface of this node; None when it has none or isn't there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            answer = fcntl.ioctl(sock, _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])


def with_suffix(host: str, suffix: str | None) -> str:
    """The name of a host's fast interface: `jwb0001` and `i` give `jwb0001i`; the suffix goes before a domain."""
    name, dot, domain = host.partition(".")
    return f"{name}{suffix or ''}{dot}{domain}"


def resolve(host: str) -> str | None:
    """The IPv4 address of a name; None when it has none."""
    try:
        return socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0]  # type: ignore[return-value]
    except OSError:
        return None


def reserve_port(seed: str) -> tuple[int, socket.socket]:
    """A free TCP port for the ranks' rendezvous and the socket that holds it; close the socket just before they start.

    The search starts at a port derived from `seed` (the job's id), so two jobs on one node seldom meet.
    Raises OSError when every port is taken.
    """
    start = sum(byte * 31**place for place, byte in enumerate(seed.encode()[-16:])) % PORTS
    for turn in range(PORTS):
        port = FIRST_PORT + (start + turn) % PORTS
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.bind(("", port))
        except OSError as error:
            sock.close()
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            continue
        return port, sock
    raise OSError(errno.EADDRINUSE, f"no free TCP port between {FIRST_PORT} and {FIRST_PORT + PORTS - 1}")
