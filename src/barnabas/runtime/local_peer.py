"""Requests of a node to itself: encoded and passed through its own pipeline like any other, without a socket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ports import Clock, Timer
from barnabas.model.session import Exchange, Refused
from barnabas.runtime.pipeline import Pipeline
from barnabas.wire import catalogue, codec, header
from barnabas.wire.schema import DecodeError, EncodeError, Message, versions_of

Then = Callable[[Any], None]


class _Call:
    __slots__ = ("response", "then", "timer", "version")

    def __init__(self, response: type[Message], version: int, then: Then) -> None:
        self.response = response
        self.version = version
        self.then: Then | None = then
        self.timer: Timer | None = None

    def finish(self, outcome: Any) -> None:
        then, self.then = self.then, None
        if self.timer is not None:
            self.timer.cancel()
        if then is not None:
            then(outcome)


class LocalPeer:
    def __init__(self, pipeline: Pipeline, clock: Clock, *, listener: str, client_id: str) -> None:
        self._clock = clock
        self._client_id = client_id
        self._calls: dict[Exchange, _Call] = {}
        self._session = pipeline.open(self, listener, "localhost")
        self._correlation_id = 0
        self.is_open = True

    def send(self, request: Message, timeout_ms: int, then: Then, *, version: int | None = None) -> None:
        """As ``Network.send``, but ``then`` may be called before this returns."""
        if not self.is_open:
            then(ApiError(ErrorCode.NETWORK_EXCEPTION, "the node is stopping"))
            return
        if version is None:
            version = versions_of(type(request)).last
        self._correlation_id = self._correlation_id + 1 & 0x7FFFFFFF
        call = _Call(catalogue.api_classes(request.api_key)[1], version, then)
        try:
            chunks = header.frame_request(request, version, self._correlation_id, self._client_id)
            frame = bytearray(b"".join(chunks))  # type: ignore[arg-type]
            outcome = self._session.receive(memoryview(frame), 4, len(frame))
        except (EncodeError, Refused) as problem:
            call.finish(ApiError(ErrorCode.INVALID_REQUEST, str(problem)))
            return
        if outcome is None or isinstance(outcome, bytes):
            call.finish(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(request).__name__} failed"))
        elif outcome.chunks is not None:
            self._finish(call, outcome)
        else:
            self._calls[outcome] = call
            deadline_ms = self._clock.monotonic_ms() + timeout_ms
            call.timer = self._clock.call_at(deadline_ms, lambda: self._time_out(outcome))

    def on_reply(self, exchange: Exchange) -> None:
        call = self._calls.pop(exchange, None)
        if call is not None:
            self._finish(call, exchange)

    def _finish(self, call: _Call, exchange: Exchange) -> None:
        data = b"".join(exchange.chunks or ())
        header_version = header.response_header_version(call.response, call.version)
        try:
            _, body = header.decode_response_header(data, 4, len(data), header_version)
            response, _ = codec.reader(call.response, call.version)(data, body, len(data))
        except DecodeError as problem:
            call.finish(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(problem)))
            return
        call.finish(response)

    def _time_out(self, exchange: Exchange) -> None:
        call = self._calls.pop(exchange, None)
        if call is not None:
            exchange.abandon()
            call.finish(ApiError(ErrorCode.REQUEST_TIMED_OUT))

    def close(self) -> None:
        self.is_open = False
        calls, self._calls = self._calls, {}
        for exchange, call in calls.items():
            exchange.abandon()
            call.finish(ApiError(ErrorCode.NETWORK_EXCEPTION, "the node is stopping"))
