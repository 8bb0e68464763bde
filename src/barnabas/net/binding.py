"""Sockets that listen: binding them, letting clients in, and the addresses that host names stand for."""

from __future__ import annotations

import socket

UNRESOLVED = (socket.gaierror, UnicodeError)
"""What a host name that cannot be resolved raises."""


class BoundSocket:
    """Bound, and not listening yet. Its port is the real one where 0 was asked for."""

    def __init__(self, host: str, port: int) -> None:
        """Raises OSError and UnicodeError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind((host, port))
        except (OSError, UnicodeError):
            self.socket.close()
            raise
        self.port = int(self.socket.getsockname()[1])

    def listen(self, backlog: int) -> None:
        """Two processes may have bound the same port; the first to listen has it. Raises OSError."""
        self.socket.listen(backlog)

    def close(self) -> None:
        self.socket.close()


def address_of(host: str) -> str:
    """The first address of a host name; empty where there is none. May block on a name server."""
    try:
        return str(socket.getaddrinfo(host, None)[0][4][0]) if host else ""
    except (OSError, UnicodeError):
        return ""
