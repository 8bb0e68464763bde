"""One attempt to connect to a host and port: resolve the name, then try each address in turn."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

_UNDER_WAY = (0, errno.EINPROGRESS, errno.EINTR)


class Dialled(NamedTuple):
    socket: socket.socket
    """Connected and non-blocking."""
    ip: str


class Dial:
    """``then`` gets the connected socket or the OSError of the attempt, and is called from the loop only.

    The error is ConnectionRefusedError where any of the addresses refused: that host is up, and nothing listens there.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        host: str,
        port: int,
        timeout_ms: int,
        then: Callable[[Dialled | OSError], None],
    ) -> None:
        """``timeout_ms`` limits the attempt at each address; the resolver has limits of its own."""
        self._loop = loop
        self._host = host
        self._port = port
        self._timeout_s = timeout_ms / 1000
        self._then = then
        self._addresses: deque[Any] = deque()
        self._socket: socket.socket | None = None
        self._ip = ""
        self._problem: OSError | None = None
        self._is_cancelled = False
        self._pending: asyncio.Handle | asyncio.Future[Any] = loop.call_soon(self._resolve)

    def cancel(self) -> None:
        """``then`` is not called any more, and no socket stays open."""
        self._is_cancelled = True
        self._pending.cancel()
        sock = self._release_socket()
        if sock is not None:
            sock.close()

    # Resolving

    def _resolve(self) -> None:
        look_up = partial(socket.getaddrinfo, self._host, self._port, type=socket.SOCK_STREAM)
        try:
            self._addresses.extend(look_up(flags=socket.AI_NUMERICHOST))  # does not block
        except (OSError, ValueError):
            self._pending = resolving = self._loop.run_in_executor(None, look_up)
            resolving.add_done_callback(self._on_resolved)
        else:
            self._try_next()

    def _on_resolved(self, resolving: asyncio.Future[Any]) -> None:
        if self._is_cancelled:  # perhaps after the name was resolved, and before this call
            return
        problem = resolving.exception()
        if problem is None:
            self._addresses.extend(resolving.result())
        else:  # ValueError too: names that cannot be encoded
            self._problem = OSError(f"cannot resolve {self._host!r}: {problem}")
        self._try_next()

    # Connecting

    def _try_next(self) -> None:
        while self._addresses:
            family, kind, protocol, _, address = self._addresses.popleft()
            try:
                self._begin(socket.socket(family, kind, protocol), address)
            except (OSError, OverflowError) as problem:  # OverflowError: the port
                self._failed(problem if isinstance(problem, OSError) else OSError(str(problem)))
            else:
                return
        self._then(self._problem or OSError(f"{self._host!r} has no address"))

    def _begin(self, sock: socket.socket, address: Any) -> None:
        self._socket, self._ip = sock, address[0]
        sock.setblocking(False)
        code = sock.connect_ex(address)
        if code not in _UNDER_WAY:
            raise OSError(code, os.strerror(code))
        self._loop.add_writer(sock.fileno(), self._on_writable)
        self._pending = self._loop.call_later(self._timeout_s, self._on_timeout)

    def _on_writable(self) -> None:
        assert self._socket is not None
        self._pending.cancel()
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._next_after(OSError(code, os.strerror(code)))
        elif is_connected_to_itself(self._socket):
            self._next_after(ConnectionRefusedError(errno.ECONNREFUSED, "connected to itself: nothing listens there"))
        else:
            sock = self._release_socket()
            assert sock is not None
            self._then(Dialled(sock, self._ip))

    def _on_timeout(self) -> None:
        self._next_after(TimeoutError(errno.ETIMEDOUT, f"not connected within {self._timeout_s:g} s"))

    def _next_after(self, problem: OSError) -> None:
        self._failed(problem)
        self._try_next()

    def _failed(self, problem: OSError) -> None:
        if self._problem is None or isinstance(problem, ConnectionRefusedError):
            self._problem = problem
        sock = self._release_socket()
        if sock is not None:
            sock.close()

    def _release_socket(self) -> socket.socket | None:
        sock, self._socket = self._socket, None
        if sock is not None:
            self._loop.remove_writer(sock.fileno())
        return sock


def is_connected_to_itself(sock: socket.socket) -> bool:
    """TCP allows it where the kernel picks the port that is dialled as the local one. It would keep the port from the
    process that should listen there."""
    try:
        return bool(sock.getsockname() == sock.getpeername())
    except OSError:
        return False
