"""The byte stream of a connection and the only user of its socket. TLS will be another channel."""

from __future__ import annotations

import contextlib
import os
import socket
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence

from barnabas.model.ports import File

_TCP_CONGESTION: int | None = getattr(socket, "TCP_CONGESTION", None)
_UNPACED = b"reno"
"""In every Linux kernel, and open to every user."""


def is_loopback(peer: str) -> bool:
    return peer == "::1" or peer.removeprefix("::ffff:").startswith("127.")


class PlainChannel:
    """Reads and writes do not block: they raise BlockingIOError instead, and OSError where the peer is gone."""

    __slots__ = ("_fd", "_loop", "_socket")

    def __init__(self, sock: socket.socket, loop: AbstractEventLoop, peer: str) -> None:
        self._socket = sock
        self._loop = loop
        self._fd = sock.fileno()
        sock.setblocking(False)
        with contextlib.suppress(OSError):  # macOS refuses it for a peer that is gone already
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if is_loopback(peer):
            self._turn_pacing_off()

    def _turn_pacing_off(self) -> None:
        """BBR would send large replies over the loopback at the pace of a timer, at twice the CPU."""
        if _TCP_CONGESTION is not None:
            with contextlib.suppress(OSError):  # the kernel's own choice then stays
                self._socket.setsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, _UNPACED)

    @property
    def congestion_control(self) -> bytes:
        """Linux only."""
        name: bytes = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        return name.rstrip(b"\0")

    def receive_into(self, view: memoryview) -> int:
        return self._socket.recv_into(view)

    def send(self, data: bytes | bytearray | memoryview) -> int:
        return os.write(self._fd, data)

    def send_gathered(self, chunks: Sequence[bytes | bytearray | memoryview]) -> int:
        return os.writev(self._fd, chunks)

    def send_file(self, file: File, position: int, size: int) -> int:
        try:
            return os.sendfile(self._fd, file.fileno(), position, size)
        finally:
            file.release_fileno()

    # Readiness

    def watch_readable(self, callback: Callable[[], None]) -> None:
        self._loop.add_reader(self._fd, callback)

    def unwatch_readable(self) -> None:
        self._loop.remove_reader(self._fd)

    def watch_writable(self, callback: Callable[[], None]) -> None:
        self._loop.add_writer(self._fd, callback)

    def unwatch_writable(self) -> None:
        self._loop.remove_writer(self._fd)

    def close(self) -> None:
        self.unwatch_readable()
        self.unwatch_writable()
        self._socket.close()
