"""One connection to one broker: frames out, frames in, and the versions that both sides support.

Replies come in the order of the requests, so a caller may send on several connections first and receive afterwards.
``connect`` is the only place that makes a connection: encryption and authentication will be added there.
The records of a reply are views into the buffer allocated for that reply, which lives as long as they do.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from barnabas.client.wire.address import Address
from barnabas.client.wire.errors import BrokerError, BrokerUnavailable, ProtocolError, UnsupportedApi
from barnabas.model.errors import ErrorCode
from barnabas.wire import codec, header
from barnabas.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.schema import Message, versions_of

R = TypeVar("R", bound=Message)

MAX_RESPONSE_BYTES = 512 * 1024 * 1024
"""A reply that claims more is taken for something that is not a reply: a web server's, say."""

JOINED_BYTES = 64 * 1024
"""Requests up to here go to the socket in one piece; larger ones chunk by chunk, without a copy."""

_SMALLEST_RESPONSE = 4
_SIZE = struct.Struct(">i")
_CODE = struct.Struct(">h")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    client_id: str = "barnabas"
    connect_timeout_s: float = 5.0
    request_timeout_s: float = 30.0
    wrap: Callable[[socket.socket, Address], socket.socket] | None = None
    """Makes a plain socket a secure one: TLS."""
    authenticate: Callable[[Connection], None] | None = None
    """Runs after the versions are known and before anything else is sent: SASL."""


class Sent(NamedTuple):
    """A request that waits for its reply."""

    correlation_id: int
    version: int
    deadline: float


def connect(address: Address, settings: ConnectionSettings) -> Connection:
    """A connection that is ready for requests. Raises BrokerUnavailable, UnsupportedApi or ProtocolError."""
    try:
        plain = socket.create_connection(address, timeout=settings.connect_timeout_s)
    except OSError as error:
        raise BrokerUnavailable(address, _reason(error)) from error
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        secured = settings.wrap(plain, address) if settings.wrap else plain
    except OSError as error:
        plain.close()
        raise BrokerUnavailable(address, _reason(error)) from error
    connection = Connection(secured, address, settings)
    try:
        connection.negotiate()
        if settings.authenticate:
            settings.authenticate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


class Connection:
    __slots__ = ("_next_id", "_settings", "_socket", "_waiting", "address", "closed", "versions")

    def __init__(self, connected: socket.socket, address: Address, settings: ConnectionSettings) -> None:
        self._socket = connected
        self._settings = settings
        self._next_id = 0
        self._waiting: deque[int] = deque()
        self.address = address
        self.closed = False
        self.versions: dict[int, tuple[int, int]] = {}
        """What the broker offers, by API key. Empty until it has been asked."""

    def request(self, message: Message, answer: type[R], *, version: int | None = None, wait_s: float = 0) -> R:
        """One request and its reply. ``wait_s`` is how long the broker was asked to hold the reply back."""
        return self.receive(self.send(message, version=version, wait_s=wait_s), answer)

    def send(
        self, message: Message, *, version: int | None = None, wait_s: float = 0, expects_reply: bool = True
    ) -> Sent:
        if version is None:
            version = self.version_for(type(message))
        correlation_id = self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        chunks = header.frame_request(message, version, correlation_id, self._settings.client_id)
        deadline = time.monotonic() + self._settings.request_timeout_s + wait_s
        self._write(chunks, deadline)
        if expects_reply:
            self._waiting.append(correlation_id)
        return Sent(correlation_id, version, deadline)

    def receive(self, sent: Sent, answer: type[R]) -> R:
        buffer = self._receive_frame(sent)
        header_version = header.response_header_version(answer, sent.version)
        try:
            _, at = header.decode_response_header(buffer, 0, len(buffer), header_version)
            return codec.decode(answer, sent.version, buffer, at)[0]
        except codec.DecodeError as error:
            self.close()
            raise ProtocolError(f"{self.address} sent no {answer.__name__} version {sent.version}: {error}") from error

    def version_for(self, request: type[Message]) -> int:
        """The highest version that both sides know. Raises UnsupportedApi."""
        ours = versions_of(request)
        name = request.__name__.removesuffix("Request")
        offered = self.versions.get(request.api_key)
        if offered is None:
            raise UnsupportedApi(f"the broker at {self.address} does not offer {name}")
        lowest, highest = max(ours.first, offered[0]), min(ours.last, offered[1])
        if lowest > highest:
            wanted = f"the broker offers {offered[0]}-{offered[1]}, this client knows {request.versions}"
            raise UnsupportedApi(f"{self.address}: no version of {name} in common: {wanted}")
        return highest

    def negotiate(self) -> None:
        """Asks for the versions, at first with the newest request there is (KIP-511)."""
        version = versions_of(ApiVersionsRequest).last
        answer = self._ask_versions(version)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            offered = [item.max_version for item in answer.api_keys if item.api_key == ApiVersionsRequest.api_key]
            answer = self._ask_versions(min(version, max(offered, default=0)))
        if answer.error_code:
            raise BrokerError(answer.error_code, str(self.address))
        self.versions = {item.api_key: (item.min_version, item.max_version) for item in answer.api_keys}

    def fileno(self) -> int:
        """For ``select``: readable when a reply begins to arrive."""
        return self._socket.fileno()

    def close(self) -> None:
        self.closed = True
        self._socket.close()

    def _ask_versions(self, version: int) -> ApiVersionsResponse:
        """A broker that does not know the version says so in the form of version 0."""
        request = ApiVersionsRequest(client_software_name="barnabas", client_software_version="0.1")
        sent = self.send(request, version=version)
        # Part of connecting: where this broker hangs, another should be tried soon.
        deadline = min(sent.deadline, time.monotonic() + self._settings.connect_timeout_s)
        buffer = self._receive_frame(sent._replace(deadline=deadline))
        try:
            _, at = header.decode_response_header(buffer, 0, len(buffer), 0)
            if len(buffer) >= at + 2 and _CODE.unpack_from(buffer, at)[0] == ErrorCode.UNSUPPORTED_VERSION:
                version = 0
            return codec.decode(ApiVersionsResponse, version, buffer, at)[0]
        except codec.DecodeError as error:
            raise ProtocolError(f"{self.address} does not speak Kafka's protocol: {error}") from error

    def _write(self, chunks: list[codec.Chunk], deadline: float) -> None:
        pieces = [chunk for chunk in chunks if isinstance(chunk, (bytes, bytearray, memoryview))]
        if codec.size(chunks) <= JOINED_BYTES:
            pieces = [b"".join(pieces)]
        try:
            for piece in pieces:
                self._socket.settimeout(_left(deadline))
                self._socket.sendall(piece)
        except OSError as error:
            raise self._lost(error) from error

    def _receive_frame(self, sent: Sent) -> memoryview:
        (size,) = _SIZE.unpack(self._read(4, sent.deadline))
        if not _SMALLEST_RESPONSE <= size <= MAX_RESPONSE_BYTES:
            self.close()
            raise ProtocolError(f"{self.address} does not speak Kafka's protocol: a reply of {size} bytes")
        buffer = self._read(size, sent.deadline)
        (correlation_id,) = _SIZE.unpack_from(buffer)
        if not self._waiting or not self._waiting.popleft() == sent.correlation_id == correlation_id:
            self.close()
            raise ProtocolError(f"{self.address} answered out of order")
        return buffer

    def _read(self, size: int, deadline: float) -> memoryview:
        view = memoryview(bytearray(size))
        have = 0
        try:
            while have < size:
                self._socket.settimeout(_left(deadline))
                count = self._socket.recv_into(view[have:])
                if not count:
                    raise ConnectionResetError("the connection was closed")
                have += count
        except OSError as error:
            raise self._lost(error) from error
        return view

    def _lost(self, error: OSError) -> BrokerUnavailable:
        """A reply that is not read now would be taken for another's: the connection ends with its first failure."""
        self.close()
        return BrokerUnavailable(self.address, _reason(error))


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return (error.strerror or str(error)).lower()
