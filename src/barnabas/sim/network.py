"""Connections of simulated clients and nodes: encoded frames, latency, cut and bad links, disconnects at any moment.

The server side behaves like ``net.connection``: replies leave in the order of the requests, and a parked request other
than Produce stops those behind it. Frames of one connection arrive in order. A link that is cut, in one direction or
both, holds frames back; they arrive when it heals, unless the connection has been given up by then. A bad link delays
frames and breaks connections in the middle of a frame: half a frame is none, so the receiver sees only the end.
Schedules hold back the requests or the responses of one API; what follows on the same connection waits behind them.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ports import Address
from barnabas.model.session import Exchange, Refused
from barnabas.runtime.pipeline import Pipeline
from barnabas.sim.clock import Event, NodeClock, Scheduler
from barnabas.wire import catalogue, codec, header
from barnabas.wire.schema import Message, versions_of

MIN_LATENCY_MS, MAX_LATENCY_MS = 0.1, 3.0
HELD_MS = 40.0
"""Between two looks whether a cut link has healed."""


class Weather(NamedTuple):
    """Of a bad link."""

    break_chance: float
    """That a frame breaks its connection half-way."""
    delay_ms: float
    """At most, beside the latency."""


class Hold(NamedTuple):
    """Frames that a schedule holds back; None stands for any host."""

    api_key: int
    sender: str | None
    receiver: str | None
    is_response: bool = False
    listener: str | None = None


class Links:
    """Which hosts cannot reach which. A host is a node's name, or a client's."""

    def __init__(self) -> None:
        self._cut: set[tuple[str, str]] = set()
        self._weather: dict[tuple[str, str], Weather] = {}
        self._holds: list[Hold] = []

    def cut(self, sender: str, receiver: str) -> None:
        self._cut.add((sender, receiver))

    def worsen(self, sender: str, receiver: str, weather: Weather) -> None:
        self._weather[sender, receiver] = weather

    def heal(self) -> None:
        self._cut.clear()
        self._weather.clear()
        self._holds.clear()

    def mend(self, sender: str, receiver: str) -> None:
        self._cut.discard((sender, receiver))

    def hold(self, hold: Hold) -> None:
        self._holds.append(hold)

    def release(self, hold: Hold) -> None:
        if hold in self._holds:
            self._holds.remove(hold)

    def weather(self, sender: str, receiver: str) -> Weather | None:
        return self._weather.get((sender, receiver)) if self._weather else None

    def is_cut(self, sender: str, receiver: str) -> bool:
        return (sender, receiver) in self._cut

    def holds(self, sender: str, receiver: str, api_key: int, listener: str, *, is_response: bool) -> bool:
        return bool(self._holds) and any(
            hold.api_key == api_key
            and hold.listener in (None, listener)
            and hold.is_response == is_response
            and hold.sender in (None, sender)
            and hold.receiver in (None, receiver)
            for hold in self._holds
        )


def key_of(frame: bytes | bytearray) -> int:
    """The API key of a request."""
    return frame[4] << 8 | frame[5]


@cache
def _latest_version(message: type[Message]) -> int:
    return versions_of(message).last


class _Ready:
    """A reply of the pipeline's fast path, which waits for those before it."""

    is_pipelined = True
    throttle_ms = 0

    def __init__(self, reply: bytes) -> None:
        self.chunks: list[Any] | None = [reply]
        self.size = len(reply)

    def abandon(self) -> None: ...

    def overtake(self) -> None: ...


class Connection:
    """One connection; ``on_frame`` and ``on_end`` are the client's."""

    def __init__(
        self,
        scheduler: Scheduler,
        rng: random.Random,
        pipeline: Pipeline,
        clock: NodeClock,
        *,
        links: Links,
        client_host: str,
        server_host: str,
        listener: str,
        on_frame: Callable[[bytes], None],
        on_end: Callable[[], None],
    ) -> None:
        self.is_open = True
        self.client_host = client_host
        self._server_host = server_host
        self._listener = listener
        self._was_held = False
        self._links = links
        self._scheduler = scheduler
        self._random = rng
        self._clock = clock
        self._on_frame = on_frame
        self._on_end = on_end
        self._session = pipeline.open(self, listener, client_host)
        self._received: deque[bytes] = deque()
        self._in_flight: deque[Exchange] = deque()
        self._keys: deque[int] = deque()
        """The API keys of the requests in flight."""
        self._stopped_by: Exchange | None = None
        self._is_handling = False
        self._client_gets_at_ms = 0.0
        self._server_gets_at_ms = 0.0
        self._to_server: deque[bytes] = deque()
        self._to_client: deque[tuple[int, bytes]] = deque()

    def _latency_ms(self, sender: str = "", receiver: str = "") -> float:
        weather = self._links.weather(sender, receiver)
        delay_ms = 0.0 if weather is None else self._random.uniform(0, weather.delay_ms)
        return delay_ms + self._random.uniform(MIN_LATENCY_MS, MAX_LATENCY_MS)

    def _breaks(self, sender: str, receiver: str) -> bool:
        weather = self._links.weather(sender, receiver)
        return weather is not None and self._random.random() < weather.break_chance

    # The client's side

    def send(self, frame: bytes) -> None:
        """Frames arrive in order."""
        if not self.is_open:
            return
        self._to_server.append(frame)
        latency_ms = self._latency_ms(self.client_host, self._server_host)
        self._server_gets_at_ms = max(self._server_gets_at_ms, self._scheduler.now_ms + latency_ms)
        self._clock.run(self._server_gets_at_ms - self._scheduler.now_ms, self._arrive)

    def _arrive(self) -> None:
        if not self._to_server or not (self.is_open or self._was_held):
            return
        sender, receiver, key = self.client_host, self._server_host, key_of(self._to_server[0])
        is_held = self._links.holds(sender, receiver, key, self._listener, is_response=False)
        if is_held or self._links.is_cut(sender, receiver):
            self._was_held = self._was_held or is_held
            self._clock.run(HELD_MS, self._arrive)
            return
        if not self.is_open:
            self._take_late(self._to_server.popleft())
            return
        if self._breaks(self.client_host, self._server_host):
            self.close()
            return
        self._received.append(self._to_server.popleft())
        self._handle()

    def _take_late(self, frame: bytes) -> None:
        """A frame that a schedule held back after it had reached the server's machine: the end comes behind it."""
        with suppress(Refused):
            self._session.receive(memoryview(bytearray(frame)), 4, len(frame))

    # The server's side

    def _handle(self) -> None:
        if self._is_handling:
            return
        self._is_handling = True
        while self._received and self._stopped_by is None and self.is_open:
            frame = bytearray(self._received.popleft())
            try:
                outcome = self._session.receive(memoryview(frame), 4, len(frame))
            except Refused:
                outcome = None
            if outcome is None:
                self.close()
                break
            exchange: Exchange = _Ready(outcome) if isinstance(outcome, bytes) else outcome
            self._in_flight.append(exchange)
            self._keys.append(key_of(frame))
            if exchange.chunks is None and not exchange.is_pipelined:
                self._stopped_by = exchange
        self._is_handling = False
        if self._stopped_by is not None and self._received:
            self._clock.run(0, self._stopped_by.overtake)
        self._reply()

    def on_reply(self, exchange: Exchange) -> None:
        if not self.is_open or self._is_handling:
            return
        if self._stopped_by is exchange:
            self._stopped_by = None
        self._reply()
        if self._received:
            self._clock.run(0, self._handle)

    def _reply(self) -> None:
        while self._in_flight and self._in_flight[0].chunks is not None and self.is_open:
            chunks, key = self._in_flight.popleft().chunks, self._keys.popleft()
            if chunks:
                data = b"".join(
                    chunk if isinstance(chunk, bytes | bytearray | memoryview) else chunk.read() for chunk in chunks
                )
                self._to_client.append((key, data))
                latency_ms = self._latency_ms(self._server_host, self.client_host)
                self._client_gets_at_ms = max(self._client_gets_at_ms, self._scheduler.now_ms + latency_ms)
                self._scheduler.at(self._client_gets_at_ms, self._deliver)

    def _deliver(self) -> None:
        if not self.is_open or not self._to_client:
            return
        sender, receiver, key = self._server_host, self.client_host, self._to_client[0][0]
        is_held = self._links.holds(sender, receiver, key, self._listener, is_response=True)
        if is_held or self._links.is_cut(sender, receiver):
            self._scheduler.after(HELD_MS, self._deliver)
            return
        if self._breaks(self._server_host, self.client_host):
            self.close()
            return
        self._on_frame(self._to_client.popleft()[1])

    # The end

    def close(self) -> None:
        """Both sides notice, the client a moment later; what was on its way is lost."""
        if not self.is_open:
            return
        self.is_open = False
        for exchange in self._in_flight:
            if exchange.chunks is None:
                exchange.abandon()
        self._in_flight.clear()
        self._scheduler.after(self._latency_ms(), self._on_end)


Connect = Callable[[Address, Callable[[bytes], None], Callable[[], None]], Connection | None]
"""Makes a connection of this node to an address; None where nobody listens."""


class _Call:
    __slots__ = ("correlation_id", "response", "then", "timer", "version")

    def __init__(self, response: type[Message], version: int, correlation_id: int, then: Callable[[Any], None]) -> None:
        self.response = response
        self.version = version
        self.correlation_id = correlation_id
        self.then: Callable[[Any], None] | None = then
        self.timer: Event | None = None

    def finish(self, outcome: Any) -> None:
        then, self.then = self.then, None
        if self.timer is not None:
            self.timer.cancel()
        if then is not None:
            then(outcome)


class _Peer:
    """One connection to one address, for one lane; made anew when it is lost."""

    def __init__(
        self,
        address: Address,
        clock: NodeClock,
        connect: Connect,
        client_id: str,
        on_refused: Callable[[Address], None],
    ) -> None:
        self._address = address
        self._on_refused = on_refused
        self._clock = clock
        self._connect = connect
        self._client_id = client_id
        self._connection: Connection | None = None
        self._calls: deque[_Call] = deque()
        self._correlation_id = 0

    def send(self, request: Message, timeout_ms: int, then: Callable[[Any], None], version: int | None) -> None:
        self._correlation_id += 1
        chosen = _latest_version(type(request)) if version is None else version
        call = _Call(catalogue.api_classes(request.api_key)[1], chosen, self._correlation_id, then)
        if self._connection is None:
            self._connection = self._open()
        if self._connection is None:
            self._clock.run(1.0, lambda: self._refused(call))
            return
        self._calls.append(call)
        call.timer = self._clock.call_at(
            self._clock.monotonic_ms() + timeout_ms, lambda: self._on_timeout(call, timeout_ms)
        )
        chunks = header.frame_request(request, chosen, call.correlation_id, self._client_id)
        self._connection.send(b"".join(chunks))  # type: ignore[arg-type]

    def _refused(self, call: _Call) -> None:
        self._on_refused(self._address)
        call.finish(self._lost("connection refused"))

    def _open(self) -> Connection | None:
        made: list[Connection] = []
        connection = self._connect(
            self._address,
            lambda data: self._clock.run(0, lambda: self._on_frame(made[0], data)),
            lambda: self._clock.run(0, lambda: self._on_end(made[0])),
        )
        if connection is not None:
            made.append(connection)
        return connection

    def _on_frame(self, connection: Connection, data: bytes) -> None:
        if connection is not self._connection:
            return
        call = self._calls.popleft()
        header_version = header.response_header_version(call.response, call.version)
        found, body = header.decode_response_header(data, 4, len(data), header_version)
        assert found == call.correlation_id, "replies come in order"
        call.finish(codec.reader(call.response, call.version)(data, body, len(data))[0])

    def _on_timeout(self, call: _Call, timeout_ms: int) -> None:
        if call in self._calls:
            self._calls.remove(call)
            call.finish(ApiError(ErrorCode.REQUEST_TIMED_OUT, f"no response within {timeout_ms} ms"))
            self._give_up()

    def _give_up(self) -> None:
        connection, self._connection = self._connection, None
        calls, self._calls = self._calls, deque()
        if connection is not None:
            connection.close()
        for call in calls:
            call.finish(self._lost("the connection was given up"))

    def _on_end(self, connection: Connection) -> None:
        if connection is self._connection:
            self._give_up()

    def _lost(self, reason: str) -> ApiError:
        return ApiError(ErrorCode.NETWORK_EXCEPTION, f"{self._address}: {reason}")


class NodeNetwork:
    """The Network port of one incarnation of a node."""

    def __init__(self, clock: NodeClock, connect: Connect, client_id: str) -> None:
        self._clock = clock
        self._connect = connect
        self._client_id = client_id
        self._peers: dict[tuple[Address, str], _Peer] = {}
        self.on_refused: Callable[[Address], None] = lambda _: None

    def _refused(self, address: Address) -> None:
        self.on_refused(address)

    def send(
        self,
        address: Address,
        lane: str,
        request: Any,
        timeout_ms: int,
        then: Callable[[Any], None],
        *,
        version: int | None = None,
    ) -> None:
        peer = self._peers.get((address, lane))
        if peer is None:
            peer = self._peers[address, lane] = _Peer(
                address, self._clock, self._connect, self._client_id, self._refused
            )
        peer.send(request, timeout_ms, then, version)
