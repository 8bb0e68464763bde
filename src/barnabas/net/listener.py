"""Listeners: accept connections within limits, check for idle ones, close them.

All listeners of a process share one ConnectionLimits. Without max.connections the limit is the number of available
descriptors less those that the logs need. At the limit, new connections wait in the kernel's accept queue and the open
ones are served on.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import Counter
from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from barnabas.model.session import RequestPipeline
from barnabas.net.channel import PlainChannel
from barnabas.net.connection import Connection
from barnabas.net.outbox import PIECE_BYTES
from barnabas.net.shortage import Shortage

SCRATCH_BYTES = 256 << 10
ACCEPT_PAUSE_S = 0.1
MAX_ACCEPTS_AT_ONCE = 64
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

ReadAhead = Callable[[Any, Callable[[], None]], None]
"""Reads a file range off the loop, then calls back on it."""
Log = Callable[..., None]


class ConnectionLimits(Struct, kw_only=True):
    max_frame_bytes: int = 100 << 20
    max_connections: int = 1 << 31
    """Beyond this many, new ones wait in the kernel's queue."""
    max_connections_per_ip: int = 1 << 31
    max_connections_per_ip_overrides: dict[str, int] = field(default_factory=dict)
    max_idle_ms: int = 600_000
    frame_timeout_ms: int = 30_000
    max_buffered_bytes: int = 256 << 20
    """Of requests that are still arriving. A connection that needs more waits until others are done or give way."""
    buffered_bytes: int = 0
    open: set[Connection] = field(default_factory=set)
    per_ip: Counter[str] = field(default_factory=Counter)
    shortage: Shortage = field(default_factory=Shortage)

    def allows(self, peer: str) -> bool:
        return self.per_ip[peer] < self.max_connections_per_ip_overrides.get(peer, self.max_connections_per_ip)

    def has_room(self, more_bytes: int) -> bool:
        return self.buffered_bytes + more_bytes <= self.max_buffered_bytes

    @property
    def full(self) -> bool:
        return len(self.open) >= self.max_connections


class Listener:
    def __init__(
        self,
        *,
        name: str,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        pipeline: RequestPipeline,
        limits: ConnectionLimits,
        read_ahead: ReadAhead,
        log: Log,
        sendfile: bool = True,
    ) -> None:
        self.name = name
        self.loop = loop
        self.pipeline = pipeline
        self.limits = limits
        self.read_ahead = read_ahead
        self.scratch_view = memoryview(bytearray(SCRATCH_BYTES))
        self.pieces = None if sendfile else memoryview(bytearray(PIECE_BYTES))
        """For parts of files, one at a time, where there is no sendfile."""
        self._socket = sock
        self._log = log
        self._accepting = False
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False
        self._refusals = 0
        self._pauses = 0
        """Since the accept queue was last empty."""

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def now(self) -> float:
        return self.loop.time()

    def start(self) -> None:
        self._socket.setblocking(False)
        self._accept_on()
        self._schedule_sweep()

    # Accepting

    def _accept_on(self) -> None:
        if not self._accepting and not self._closed:
            self._accepting = True
            self.loop.add_reader(self._socket.fileno(), self._accept)

    def _accept_off(self) -> None:
        if self._accepting:
            self._accepting = False
            self.loop.remove_reader(self._socket.fileno())

    def _accept(self) -> None:
        for _ in range(MAX_ACCEPTS_AT_ONCE):
            if self.limits.full:
                self._pause(f"{len(self.limits.open)} connections are open, which is the limit")
                return
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                self._pauses = 0
                return
            except OSError as problem:
                if problem.errno in _EXHAUSTED:
                    self._pause(f"accepting failed: {problem.strerror}")
                    return
                continue  # the network's trouble with that one connection (accept(2)): others may be waiting
            self._admit(sock, str(address[0]))

    def _pause(self, reason: str) -> None:
        """Tries again soon. Told in powers of two: it lasts as long as the connections do."""
        self._pauses += 1
        if self._pauses & (self._pauses - 1) == 0:
            self._log("accepting paused", listener=self.name, reason=reason, pauses=self._pauses)
        self._accept_off()
        self.loop.call_later(ACCEPT_PAUSE_S, self._accept_on)

    def _admit(self, sock: socket.socket, peer: str) -> None:
        if not self.limits.allows(peer):
            sock.close()
            return
        self.limits.per_ip[peer] += 1
        self.limits.open.add(Connection(self, PlainChannel(sock, self.loop, peer), peer))

    # Watching

    def _schedule_sweep(self) -> None:
        every_ms = min(self.limits.frame_timeout_ms, self.limits.max_idle_ms) / 4
        self._sweep = self.loop.call_later(min(5.0, max(0.05, every_ms / 1000)), self._on_sweep)

    def _on_sweep(self) -> None:
        """Closes connections whose frame takes too long or that are idle, and takes back quiet ones' buffers."""
        now = self.now()
        frame_before = now - self.limits.frame_timeout_ms / 1000
        idle_before = now - self.limits.max_idle_ms / 1000
        for connection in self._connections():
            connection.note_activity(now)
            if connection.waits_for_peer and (connection.frame_since or now) < frame_before:
                self.report_refusal(connection, f"a frame not complete within {self.limits.frame_timeout_ms} ms")
                connection.close()
            elif connection.may_be_idle and connection.last_active < idle_before:
                connection.close()
            elif connection.last_active < now - 5:
                connection.release_buffer()
            connection.read_on()
        self._schedule_sweep()

    def _connections(self) -> list[Connection]:
        return [each for each in self.limits.open if each.listener_name == self.name]

    def forget(self, connection: Connection) -> None:
        self.limits.open.discard(connection)
        self.limits.per_ip[connection.peer] -= 1
        if self.limits.per_ip[connection.peer] <= 0:
            del self.limits.per_ip[connection.peer]

    # Telling

    def report_refusal(self, connection: Connection, reason: str) -> None:
        """A peer's fault. Told in powers of two, so that an attack cannot fill the log."""
        self._refusals += 1
        if self._refusals & (self._refusals - 1) == 0:
            self._log("connection closed", peer=connection.peer, reason=reason, refusals=self._refusals)

    # The end

    def drop_connections(self) -> None:
        """Closes the connections that there are; new ones are accepted."""
        for connection in self._connections():
            connection.close()

    def stop_accepting(self) -> None:
        self._closed = True
        self._accept_off()
        self._socket.close()

    def halt(self) -> None:
        """Stops reading from open connections; requests already received are answered."""
        for connection in self._connections():
            connection.halt()

    def close(self) -> None:
        if not self._closed:
            self.stop_accepting()
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in self._connections():
            connection.close()
