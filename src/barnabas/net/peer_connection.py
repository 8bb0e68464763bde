"""A connection to another node: requests out, responses in, both in order.

Responses are received into one buffer and decoded there. The buffer grows with the bytes that arrive, never with a
length that is only claimed, and is reused: the records of a response are views into it, valid only while the callback
of their request runs.

The peer is not trusted. A response that is too large, malformed, or not the one that is due ends the connection.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.session import Refused
from barnabas.net.channel import PlainChannel
from barnabas.net.frames import end_of_response
from barnabas.net.outbox import Outbox, Sent
from barnabas.wire import catalogue, codec, header
from barnabas.wire.schema import DecodeError, Message

BUFFER_BYTES = 64 << 10
"""The buffer begins with this, and returns to it when responses are small again."""

_ERROR_CODE = struct.Struct(">h")


class Call:
    """A request, and the callback that gets its outcome: exactly once, and never from inside ``Peer.send``."""

    __slots__ = ("_loop", "_then", "is_sent", "request", "timer", "version")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, request: Message, version: int | None, then: Callable[[Any], None]
    ) -> None:
        self._loop = loop
        self._then: Callable[[Any], None] | None = then
        self.request = request
        self.version = version
        """None: the highest that both sides know."""
        self.is_sent = False
        self.timer: asyncio.TimerHandle | None = None

    @property
    def api(self) -> str:
        return catalogue.APIS[self.request.api_key]

    def answer(self, response: Message) -> None:
        """Calls back now: records of the response are views into the buffer."""
        then = self._finish()
        if then is None:
            return
        try:
            then(response)
        except Exception as problem:  # must not stop the responses behind it
            message = f"the callback of a {self.api} request failed"
            self._loop.call_exception_handler({"message": message, "exception": problem})

    def fail(self, error: ApiError) -> None:
        then = self._finish()
        if then is not None:
            self._loop.call_soon(then, error)

    def _finish(self) -> Callable[[Any], None] | None:
        then, self._then = self._then, None
        if self.timer is not None:
            self.timer.cancel()
        return then


class _InFlight(NamedTuple):
    call: Call
    correlation_id: int
    response: type[Message]
    version: int


class PeerConnection:
    def __init__(
        self,
        channel: PlainChannel,
        *,
        client_id: str | None,
        max_frame_bytes: int,
        on_responses: Callable[[], None],
        on_lost: Callable[[str, list[Call]], None],
    ) -> None:
        """``on_responses`` is called after responses were handled; ``on_lost`` at the end, unless ``close`` was called,
        with the calls that have no response and the reason: empty where the peer closed an idle connection."""
        self.is_open = True
        self._channel = channel
        self._client_id = client_id
        self._max_frame_bytes = max_frame_bytes
        self._on_responses = on_responses
        self._on_lost = on_lost
        self._in_flight: deque[_InFlight] = deque()
        self._correlation_id = 0
        self._out = Outbox(channel, None)
        self._writing = False
        self._view = memoryview(bytearray(BUFFER_BYTES))
        self._start = 0
        self._end = 0
        channel.watch_readable(self._on_readable)

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    # Sending

    def put(self, call: Call, version: int) -> None:
        """The request goes out with the next ``flush``. Raises EncodeError."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        chunks = header.frame_request(call.request, version, self._correlation_id, self._client_id)
        _, response = catalogue.api_classes(call.request.api_key)
        call.is_sent = True
        self._in_flight.append(_InFlight(call, self._correlation_id, response, version))
        self._out.put(chunks, codec.size(chunks))

    def flush(self) -> None:
        if self.is_open and not self._writing:
            self._write()

    def _write(self) -> None:
        try:
            is_full = self._out.send() is Sent.SOCKET_FULL
        except OSError as problem:
            self.lose(f"sending failed: {problem}")
            return
        if is_full and not self._writing:
            self._channel.watch_writable(self._write)
        elif self._writing and not is_full:
            self._channel.unwatch_writable()
        self._writing = is_full

    # Receiving

    def _on_readable(self) -> None:
        try:
            if self._end == len(self._view):
                self._make_room()
            count = self._channel.receive_into(self._view[self._end :])
        except (BlockingIOError, InterruptedError):
            return
        except OSError as problem:
            self.lose(f"receiving failed: {problem}")
        except MemoryError:
            self.lose("there is no memory for the rest of a response")
        else:
            if count:
                self._end += count
                self._handle_responses()
            else:
                is_idle = self._start == self._end and not self._in_flight
                self.lose("" if is_idle else "the peer closed the connection")

    def _make_room(self) -> None:
        """The buffer is full. Moves its rest to the front, or doubles it for the response that is still arriving."""
        rest = self._view[self._start : self._end]
        if not self._start:
            self._view = memoryview(bytearray(2 * len(self._view)))
        self._view[: len(rest)] = rest
        self._start, self._end = 0, len(rest)

    def _handle_responses(self) -> None:
        size = 0
        try:
            while self.is_open and (stop := self._end_of_next()):
                start, self._start = self._start + 4, stop
                size = stop - start
                self._answer(start, stop)
        except (Refused, DecodeError) as problem:
            self.lose(f"it broke the protocol: {problem}")
        if self.is_open:
            if self._start == self._end:
                self._reset_buffer(size)
            self._on_responses()

    def _end_of_next(self) -> int:
        return end_of_response(self._view, self._start, self._end, self._max_frame_bytes)

    def _answer(self, start: int, stop: int) -> None:
        """Decodes the response between ``start`` and ``stop`` and passes it on. Raises Refused and DecodeError."""
        if not self._in_flight:
            raise Refused("a response without a request")
        call, due, cls, version = self._in_flight[0]
        header_version = header.response_header_version(cls, version)
        correlation_id, body = header.decode_response_header(self._view, start, stop, header_version)
        if correlation_id != due:
            raise Refused(f"a response with correlation id {correlation_id} where {due} is due")
        if cls.api_key == header.API_VERSIONS_KEY and self._is_downgrade(body, stop):
            version = 0
        response, end = codec.decode(cls, version, self._view, body, stop)
        if end != stop:
            raise Refused(f"a response to {call.api} with {stop - end} bytes too many")
        self._in_flight.popleft()
        call.answer(response)

    def _is_downgrade(self, body: int, stop: int) -> bool:
        """A peer that does not know the version of ApiVersions says so in version 0 (KIP-511)."""
        return stop - body >= 2 and _ERROR_CODE.unpack_from(self._view, body)[0] == ErrorCode.UNSUPPORTED_VERSION

    def _reset_buffer(self, last_size: int) -> None:
        """A large buffer is kept as long as it is needed: growing copies what has arrived."""
        self._start = self._end = 0
        if len(self._view) > BUFFER_BYTES and 4 * last_size < len(self._view):
            self._view = memoryview(bytearray(BUFFER_BYTES))

    # The end

    def lose(self, reason: str) -> None:
        if self.is_open:
            self._on_lost(reason, self.close())

    def close(self) -> list[Call]:
        """Returns the calls that have no response."""
        self.is_open = False
        self._channel.close()
        self._out.clear()
        self._view = memoryview(b"")
        unanswered = [each.call for each in self._in_flight]
        self._in_flight.clear()
        return unanswered
