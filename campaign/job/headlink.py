"""The agent's connection to the head."""

from __future__ import annotations

import random
import socket
import time

from campaign.job.clock import ClockOffset
from campaign.job.frames import FrameError, FrameSocket, Message

MAX_QUEUED_BYTES = 64 << 20
"""What may wait for a head that doesn't read; beyond it data messages are dropped and counted."""


class NoHead(Exception):
    """The head could not be reached in time; the message says where it was looked for."""


def connect(addresses: list[str], deadline: float) -> socket.socket:
    """Connect to the first of `host:port` addresses that answers, before `deadline` (time.monotonic). Raises NoHead."""
    pause = 0.05
    reasons: dict[str, str] = {}
    while True:
        for address in addresses:
            host, _, port = address.rpartition(":")
            try:
                return socket.create_connection((host, int(port)), timeout=5)
            except OSError as error:
                reasons[address] = str(error)
        left = deadline - time.monotonic()
        if left <= 0:
            tried = "; ".join(f"{address}: {reason}" for address, reason in reasons.items())
            raise NoHead(f"the head does not answer ({tried})")
        # thousands of agents start at once: not all of them in the same instant
        time.sleep(min(left, pause * random.uniform(0.5, 1.5)))
        pause = min(2.0, pause * 1.6)


class HeadLink(FrameSocket):
    """Messages to and from the head, and the offset of its clock."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.clock = ClockOffset()
        self.bytes_dropped = 0

    def ping(self) -> None:
        """Ask for the head's time."""
        self.send({"k": "ping", "t": time.monotonic_ns()})

    def pong(self, message: Message) -> None:
        """The head's answer to a ping."""
        self.clock.add(message["t"], message["head_ns"], message["head_wall_ns"])

    def send_data(self, message: Message, size: int) -> None:
        """Send what may be lost when the head is too slow to read it; `size` is what is counted then."""
        try:
            if self.queued_bytes <= MAX_QUEUED_BYTES:
                self.send(message)
                return
        except FrameError:
            pass
        self.bytes_dropped += size
