"""The interface between a connection and the request pipeline: frames in, reply chunks out."""

from __future__ import annotations

from typing import Any, Protocol


class Refused(Exception):
    """The peer broke the protocol: its connection is closed, with this reason in the log."""


class Exchange(Protocol):
    """One request and its reply. Replies leave a connection in the order of its requests."""

    chunks: list[Any] | None
    """The framed reply: bytes and file ranges. None while the request is parked, empty where there is no reply."""
    size: int
    """Bytes of the reply."""
    throttle_ms: int
    """The client went beyond its quota: nothing more is read from it for so long."""

    @property
    def is_pipelined(self) -> bool:
        """Whether requests behind this one are handled while it is parked: only Produce."""

    def abandon(self) -> None:
        """The client has gone before the parked request was answered."""

    def overtake(self) -> None:
        """Another request of the client waits behind this one."""


class Session(Protocol):
    """A connection as the pipeline sees it."""

    def receive(self, frame: memoryview, start: int, stop: int) -> Exchange | bytes | None:
        """Handles the request between ``start`` and ``stop``; views into ``frame`` do not outlive the call.

        The bytes are a reply that was ready at once. None asks for the connection to be closed. Raises Refused.
        """


class Outlet(Protocol):
    """The connection's side, for replies that come later."""

    @property
    def is_open(self) -> bool: ...

    def on_reply(self, exchange: Exchange) -> None:
        """A request has its reply. Also called while ``receive`` is still under way for that request."""

    def close(self) -> None: ...


class RequestPipeline(Protocol):
    def open(self, outlet: Outlet, listener: str, client_host: str) -> Session: ...
