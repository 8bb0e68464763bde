"""Errors of the client. Messages name the address or the resource."""

from __future__ import annotations

from barnabas.model.errors import ApiError, ErrorCode


class ClientError(Exception):
    """Anything but an error code in a reply."""


class BrokerUnavailable(ClientError):
    """The broker cannot be reached: connection refused, unknown host, connection lost, or timeout."""

    def __init__(self, address: object, reason: object) -> None:
        super().__init__(f"no broker answers at {address}: {reason}")
        self.address = str(address)
        self.reason = str(reason)


class ProtocolError(ClientError):
    """What came back is not what the protocol says: probably not a broker, or a broken one."""


class UnsupportedApi(ClientError):
    """The broker and this client have no version of an API in common."""


class DataLoss(Exception):
    """Records that should be read are not there any more: deleted by retention, truncated, or gone with their topic."""


class BrokerError(ApiError):
    """A broker answered with an error code. ``subject`` is what was asked about: a topic, a partition."""

    def __init__(self, code: ErrorCode | int, subject: str = "", message: str | None = None) -> None:
        super().__init__(ErrorCode(code), message or "")
        self.subject = subject

    def __str__(self) -> str:
        about = f"{self.subject}: " if self.subject else ""
        if self.message:
            return f"{about}{self.message.rstrip('.')} ({self.code.name})"
        return f"{about}{self.code.name}"


def check(code: int, subject: str, message: str | None = None) -> None:
    """Raises BrokerError for a code that is an error."""
    if code:
        raise BrokerError(code, subject, message)
