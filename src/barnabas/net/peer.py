"""The client side of requests between nodes: one peer is one host and port, and at most one connection to it.

    idle ── send ──► dialling ── connected ──► negotiating ── ApiVersions ──► ready
     ▲                 │  ▲                         │                           │
     │          failed │  │ waited                  │ lost                      │ lost
     │                 ▼  │                         │                           │
     └── no calls ── backing off ◄──────────────────┴───────────────────────────┘

Calls wait in a queue until the peer is ready and fewer than ``max_in_flight`` others are in flight, then go out in
order. A lost connection fails what was in flight; what was not sent waits for the next connection, at most until its
own time-out.

A node handles the requests of one connection in order: everything waits behind a Fetch that waits for records. So
different kinds of requests to one node need separate peers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Struct

from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ports import Random
from barnabas.net.channel import PlainChannel
from barnabas.net.dial import Dial, Dialled
from barnabas.net.peer_connection import Call, PeerConnection
from barnabas.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.schema import EncodeError, Message, Versions, versions_of

API_VERSIONS_VERSION = 3
SOFTWARE_NAME, SOFTWARE_VERSION = "barnabas", "0.1"

Report = Callable[..., None]


class PeerLimits(Struct, frozen=True, kw_only=True):
    max_in_flight: int = 5
    max_queued: int = 1000
    """Calls that are not sent yet; beyond this they fail at once."""
    max_frame_bytes: int = 101 << 20
    """Of a response: Kafka's largest request, returned as records, and what is around them."""
    connect_timeout_ms: int = 5_000
    """For each address of the host."""
    negotiation_timeout_ms: int = 10_000
    backoff_ms: int = 50
    max_backoff_ms: int = 1_000
    backoff_jitter_percent: int = 20


class Backoff:
    """How long to wait before the next attempt: doubled with every failure, with jitter."""

    def __init__(self, limits: PeerLimits, random: Random) -> None:
        self._limits = limits
        self._random = random
        self.failures = 0
        """In a row."""

    def fail(self) -> float:
        """Counts a failure; returns the wait in milliseconds."""
        limits, jitter = self._limits, self._limits.backoff_jitter_percent
        doubled = limits.backoff_ms << min(self.failures, 30)
        self.failures += 1
        return min(doubled, limits.max_backoff_ms) * self._random.randrange(100 - jitter, 101 + jitter) / 100

    def reset(self) -> None:
        self.failures = 0


class Peer:
    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        host: str,
        port: int,
        client_id: str | None,
        random: Random,
        limits: PeerLimits,
        report: Report,
        on_refused: Callable[[], None] | None = None,
    ) -> None:
        """``on_refused`` is called whenever a connection is refused: a hint that the peer's process is gone."""
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._loop = loop
        self._host = host
        self._port = port
        self._client_id = client_id
        self._limits = limits
        self._report = report
        self._on_refused = on_refused
        self._backoff = Backoff(limits, random)
        self._queue: deque[Call] = deque()
        self._dial: Dial | None = None
        self._connection: PeerConnection | None = None
        self._versions: dict[int, Versions] | None = None
        """What the peer offers, by API key. None unless the connection is ready."""
        self._retry_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        """Of the back-off, or of the negotiation."""
        self._faults = 0
        self._is_closed = False

    def send(
        self, request: Message, timeout_ms: int, then: Callable[[Any], None], *, version: int | None = None
    ) -> None:
        """``then`` is called once, from the loop and never from here: with the response, or with an ApiError.

        NETWORK_EXCEPTION and REQUEST_TIMED_OUT do not say whether the request was carried out; UNSUPPORTED_VERSION and
        INVALID_REQUEST (it cannot be encoded in that version) mean that it was not sent. Records of the response are
        views into a buffer that is reused: they are valid only during ``then``. The request, and what it refers to,
        must not change before ``then``. Every request needs a response: not so Produce with acks=0.
        """
        call = Call(self._loop, request, version, then)
        if self._is_closed:
            call.fail(self._network_error("closed"))
        elif len(self._queue) >= self._limits.max_queued:
            call.fail(self._network_error(f"{len(self._queue)} requests are waiting already"))
        else:
            call.timer = self._loop.call_later(timeout_ms / 1000, self._on_timeout, call, timeout_ms)
            self._queue.append(call)
            self._advance()

    def close(self) -> None:
        """Every call that has no response gets NETWORK_EXCEPTION, as do later ones. Nothing is left open."""
        self._is_closed = True
        self._cancel_timer()
        if self._dial is not None:
            self._dial.cancel()
        unanswered = self._connection.close() if self._connection is not None else []
        unanswered += self._queue
        self._queue.clear()
        self._dial = self._connection = self._versions = None
        for call in unanswered:
            call.fail(self._network_error("closed"))

    # Calls

    def _advance(self) -> None:
        """Sends what may be sent; begins to connect where that is needed."""
        if self._versions is not None:
            self._dispatch(self._versions)
        elif self._queue and self._timer is None and self._dial is None and self._connection is None:
            self._connect_when_due()

    def _dispatch(self, offered: dict[int, Versions]) -> None:
        connection = self._connection
        assert connection is not None
        while self._queue and connection.in_flight < self._limits.max_in_flight:
            call = self._queue.popleft()
            try:
                connection.put(call, self._choose_version(call, offered))
            except ApiError as error:
                call.fail(error)
            except EncodeError as problem:
                call.fail(ApiError(ErrorCode.INVALID_REQUEST, str(problem)))
        connection.flush()

    def _choose_version(self, call: Call, offered: dict[int, Versions]) -> int:
        """The one asked for, or the highest that both sides know. Raises ApiError."""
        ours = versions_of(type(call.request))
        theirs = offered.get(call.request.api_key)
        if theirs is None:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{self.address} does not offer {call.api}")
        common = Versions(max(ours.first, theirs.first), min(ours.last, theirs.last))
        version = common.last if call.version is None else call.version
        if version not in common:
            wanted = "" if call.version is None else f"version {call.version} wanted, "
            known = f"{wanted}known here {ours.first}-{ours.last}, offered {theirs.first}-{theirs.last}"
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{call.api} at {self.address}: {known}")
        return version

    def _on_timeout(self, call: Call, timeout_ms: int) -> None:
        """A connection with a late response is given up, as in Kafka: the response may never come, and holds up all
        that are behind it."""
        reason = f"no response to {call.api} within {timeout_ms} ms"
        call.fail(ApiError(ErrorCode.REQUEST_TIMED_OUT, f"{self.address}: {reason}"))
        if not call.is_sent:
            self._queue.remove(call)
        elif self._connection is not None:
            self._connection.lose(reason)

    # Connecting

    def _connect_when_due(self) -> None:
        wait_s = self._retry_at - self._loop.time()
        if wait_s > 0:
            self._timer = self._loop.call_later(wait_s, self._on_backed_off)
        else:
            timeout_ms = self._limits.connect_timeout_ms
            self._dial = Dial(self._loop, self._host, self._port, timeout_ms, self._on_dialled)

    def _on_backed_off(self) -> None:
        self._timer = None
        self._retry_at = 0.0  # timers may be early by the clock's resolution
        self._advance()

    def _on_dialled(self, outcome: Dialled | OSError) -> None:
        self._dial = None
        if isinstance(outcome, OSError):
            self._on_failure(f"connecting failed: {outcome}")
            if isinstance(outcome, ConnectionRefusedError) and self._on_refused is not None:
                self._on_refused()
            return
        channel = PlainChannel(outcome.socket, self._loop, outcome.ip)
        self._connection = PeerConnection(
            channel,
            client_id=self._client_id,
            max_frame_bytes=self._limits.max_frame_bytes,
            on_responses=self._advance,
            on_lost=self._on_lost,
        )
        timeout_ms = self._limits.negotiation_timeout_ms
        self._timer = self._loop.call_later(
            timeout_ms / 1000, self._connection.lose, f"no response to ApiVersions within {timeout_ms} ms"
        )
        self._ask_versions(self._connection, API_VERSIONS_VERSION)

    def _ask_versions(self, connection: PeerConnection, version: int) -> None:
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION)
        then = partial(self._on_versions, connection, version)
        connection.put(Call(self._loop, request, version, then), version)
        connection.flush()

    def _on_versions(self, connection: PeerConnection, asked: int, answer: ApiVersionsResponse | ApiError) -> None:
        if isinstance(answer, ApiError) or not connection.is_open:
            return
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION and asked == API_VERSIONS_VERSION:
            offered = [each.max_version for each in answer.api_keys if each.api_key == ApiVersionsRequest.api_key]
            self._ask_versions(connection, max(0, min(max(offered, default=0), asked - 1)))
        elif answer.error_code:
            connection.lose(f"ApiVersions failed with error {answer.error_code}")
        else:
            self._cancel_timer()
            self._backoff.reset()
            self._versions = {each.api_key: Versions(each.min_version, each.max_version) for each in answer.api_keys}
            # The calls that wait go out from on_responses.

    # Failures

    def _on_lost(self, reason: str, unanswered: list[Call]) -> None:
        self._connection = self._versions = None
        error = self._network_error(reason)
        for call in unanswered:
            call.fail(error)
        self._cancel_timer()
        self._on_failure(reason)

    def _on_failure(self, reason: str) -> None:
        self._retry_at = self._loop.time() + self._backoff.fail() / 1000
        if reason:
            self._report_fault(reason)
        self._advance()

    def _report_fault(self, reason: str) -> None:
        """In powers of two, so that a dead peer cannot fill the log."""
        self._faults += 1
        if self._faults & (self._faults - 1) == 0:
            self._report("peer connection failed", peer=self.address, reason=reason, faults=self._faults)

    def _network_error(self, reason: str) -> ApiError:
        return ApiError(ErrorCode.NETWORK_EXCEPTION, f"{self.address}: {reason}")

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
