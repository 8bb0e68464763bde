"""What a listener serves: the table of APIs, and one request on its way through a handler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from barnabas.wire.schema import Message

if TYPE_CHECKING:
    from barnabas.net.connection import Connection

Handle = Callable[["Exchange", Any], Message | None]
"""Answers at once with a response, or returns None and calls ``exchange.reply`` later."""

Shortcut = Callable[[memoryview, int, int, int], bytes | None]
"""(buffer, where a request's body begins, where it ends, correlation id) -> the framed reply; or None, with nothing
done, where it has to go the ordinary way through ``Handle``."""

Loaded = tuple[type[Message], Handle, Callable[[int], Shortcut | None]]
"""The request's class, what answers it, and what gives the shortcut for a version, where there is one."""


class Api:
    """One API as it is served. Its messages and its handler are imported with the first request."""

    __slots__ = (
        "_load",
        "advertised_min_version",
        "handle",
        "key",
        "max_version",
        "min_version",
        "name",
        "pipelined",
        "request",
        "shortcut",
    )

    def __init__(
        self,
        *,
        key: int,
        name: str,
        min_version: int,
        max_version: int,
        load: Callable[[], Loaded],
        advertised_min_version: int | None = None,
        pipelined: bool = False,
    ) -> None:
        self.key = key
        self.name = name
        self.min_version = min_version
        self.max_version = max_version
        self.advertised_min_version = min_version if advertised_min_version is None else advertised_min_version
        self.pipelined = pipelined
        """Requests behind one of these that is parked are still parsed: only Produce."""
        self.request: type[Message] | None = None
        self.handle: Handle = _not_loaded
        self.shortcut: Callable[[int], Shortcut | None] = _no_shortcut
        self._load = load

    def load(self) -> type[Message]:
        self.request, self.handle, self.shortcut = self._load()
        return self.request


def _not_loaded(exchange: Exchange, request: object) -> Message | None:
    raise RuntimeError(f"{exchange.api.name} is not loaded")


def _no_shortcut(version: int) -> Shortcut | None:
    return None


Apis = Mapping[int, Api]


class Exchange:
    """One request in flight. Replies leave a connection in the order of its requests."""

    __slots__ = (
        "abandoned",
        "api",
        "chunks",
        "client_id",
        "connection",
        "correlation_id",
        "overtaken",
        "size",
        "version",
    )

    def __init__(
        self, connection: Connection, api: Api, version: int, correlation_id: int, client_id: str | None
    ) -> None:
        self.connection = connection
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.chunks: list[Any] | None = None
        """The encoded reply, once there is one; empty for a request that gets none."""
        self.size = 0
        self.abandoned: Callable[[], object] | None = None
        """Set by a handler that parks the request: called when the client goes before it is answered."""
        self.overtaken: Callable[[], object] | None = None
        """Set by a handler that parks the request though it could answer: called when the next one waits behind it."""

    def answered(self, reply: bytes) -> Exchange:
        """A shortcut has answered; the reply waits for those before it."""
        self.chunks, self.size = [reply], len(reply)
        return self

    @property
    def listener(self) -> str:
        return self.connection.listener_name

    @property
    def client_host(self) -> str:
        return self.connection.peer

    @property
    def client_software(self) -> str:
        return self.connection.software[0]

    def introduce(self, software_name: str, software_version: str) -> None:
        """The client has said which library it is (KIP-511)."""
        self.connection.software = (software_name, software_version)

    def reply(self, response: Message) -> None:
        """Answers a parked request, from anywhere on the loop."""
        self.connection.complete(self, response)

    def no_reply(self) -> None:
        """The client expects nothing (acks=0)."""
        self.chunks = []

    def close(self) -> None:
        """Ends the connection: the only way to tell a client that expects no answer of an error."""
        self.connection.close()

    @property
    def is_open(self) -> bool:
        return self.connection.is_open
