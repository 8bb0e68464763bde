"""Connections between simulated clients and nodes: encoded frames, latency, disconnects at any moment.

The server side behaves like ``net.connection``: replies leave in the order of the requests, and a parked request other
than Produce stops those behind it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

from barnabas.model.session import Exchange, Refused
from barnabas.runtime.pipeline import Pipeline
from barnabas.sim.clock import NodeClock, Scheduler

MIN_LATENCY_MS, MAX_LATENCY_MS = 0.1, 3.0


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
        client_host: str,
        on_frame: Callable[[bytes], None],
        on_end: Callable[[], None],
    ) -> None:
        self.is_open = True
        self._scheduler = scheduler
        self._random = rng
        self._clock = clock
        self._on_frame = on_frame
        self._on_end = on_end
        self._session = pipeline.open(self, "PLAINTEXT", client_host)
        self._received: deque[bytes] = deque()
        self._in_flight: deque[Exchange] = deque()
        self._stopped_by: Exchange | None = None
        self._is_handling = False
        self._client_gets_at_ms = 0.0
        self._server_gets_at_ms = 0.0

    def _latency_ms(self) -> float:
        return self._random.uniform(MIN_LATENCY_MS, MAX_LATENCY_MS)

    # The client's side

    def send(self, frame: bytes) -> None:
        """Frames arrive in order."""
        if not self.is_open:
            return
        self._server_gets_at_ms = max(self._server_gets_at_ms, self._scheduler.now_ms + self._latency_ms())
        delay_ms = self._server_gets_at_ms - self._scheduler.now_ms
        self._clock.run(delay_ms, lambda: self._arrive(frame))

    def _arrive(self, frame: bytes) -> None:
        if self.is_open:
            self._received.append(frame)
            self._handle()

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
            chunks = self._in_flight.popleft().chunks
            if chunks:
                data = b"".join(
                    chunk if isinstance(chunk, bytes | bytearray | memoryview) else chunk.read() for chunk in chunks
                )
                self._client_gets_at_ms = max(self._client_gets_at_ms, self._scheduler.now_ms + self._latency_ms())
                self._scheduler.at(self._client_gets_at_ms, lambda data=data: self._deliver(data))  # type: ignore[misc]

    def _deliver(self, data: bytes) -> None:
        if self.is_open:
            self._on_frame(data)

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
