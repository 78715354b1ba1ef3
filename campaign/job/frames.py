"""How head and agents talk: 4 bytes of length (big endian) and that many bytes of JSON, over TCP."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import struct
from collections import deque
from typing import Any

LENGTH = struct.Struct(">I")
MAX_FRAME_BYTES = 64 << 20
"""A frame never needs more: consoles, tails, and what an agent reads between two messages are bounded."""
MAX_HELLO_BYTES = 64 << 10
"""Until a peer has shown the token it may not make us buffer more than this."""

Message = dict[str, Any]


class FrameError(Exception):
    """The peer doesn't speak this protocol: too long a frame, or no JSON object in it."""


def encode(message: Message) -> bytes:
    """One frame. NaN goes as JavaScript's NaN, which `json` reads back."""
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) > MAX_FRAME_BYTES:
        raise FrameError(f"frame of {len(body)} bytes; at most {MAX_FRAME_BYTES} may be sent")
    return LENGTH.pack(len(body)) + body


def to_text(data: bytes | bytearray) -> str:
    """Bytes as they go in a message; `to_bytes` gives them back."""
    return base64.b64encode(data).decode()


def to_bytes(text: str) -> bytes:
    """The bytes that `to_text` wrote."""
    return base64.b64decode(text)


class Decoder:
    """Turns received bytes into messages; keeps what is not whole yet."""

    def __init__(self, limit: int = MAX_FRAME_BYTES) -> None:
        self.limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """The messages that `data` completes. Raises FrameError; the connection is of no use afterwards."""
        self._buffer += data
        messages: list[Message] = []
        position = 0
        while len(self._buffer) - position >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._buffer, position)
            if length > self.limit:
                raise FrameError(f"frame of {length} bytes; at most {self.limit} are read")
            end = position + LENGTH.size + length
            if end > len(self._buffer):
                break
            try:
                message = json.loads(self._buffer[position + LENGTH.size : end])
            except ValueError as error:
                raise FrameError(f"frame without JSON: {error}") from None
            if not isinstance(message, dict):
                raise FrameError("frame without a JSON object")
            messages.append(message)
            position = end
        del self._buffer[:position]
        return messages


class FrameSocket:
    """A non-blocking socket that sends and receives messages; the caller's selector says when."""

    def __init__(self, sock: socket.socket, *, limit: int = MAX_FRAME_BYTES) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # a node that died without a word is noticed after a minute
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        self.sock = sock
        self.decoder = Decoder(limit)
        self.closed = False
        self._out: deque[memoryview] = deque()
        self.queued_bytes = 0

    def fileno(self) -> int:
        """For selectors."""
        return self.sock.fileno()

    def send(self, message: Message) -> None:
        """Queue a message and write what the socket takes now."""
        frame = encode(message)
        self._out.append(memoryview(frame))
        self.queued_bytes += len(frame)
        self.write()

    def write(self) -> None:
        """Write what is queued, as far as the socket takes it. A broken connection shows in `closed`."""
        while self._out and not self.closed:
            try:
                sent = self.sock.send(self._out[0])
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self.close()
                return
            self.queued_bytes -= sent
            if sent < len(self._out[0]):
                self._out[0] = self._out[0][sent:]
            else:
                self._out.popleft()

    def receive(self) -> list[Message]:
        """The messages that have come; sets `closed` at the end of the stream. Raises FrameError."""
        try:
            data = self.sock.recv(1 << 18)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            data = b""
        if not data:
            self.close()
            return []
        return self.decoder.feed(data)

    def close(self) -> None:
        """End the connection; what was queued is lost. The descriptor stays until `dispose`.

        So a selector still finds it, reports it as readable, and no new connection gets its number meanwhile.
        """
        if not self.closed:
            self.closed = True
            self._out.clear()
            self.queued_bytes = 0
            with contextlib.suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)

    def dispose(self) -> None:
        """Close the descriptor, after it has left the selector."""
        self.close()
        self.sock.close()
