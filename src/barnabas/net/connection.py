"""One client connection: frames in, frames out, in order.

A connection without a partial frame owns no buffer: bytes are received into one that all connections share, and whole
frames are handled in place. What is left of a frame moves to a buffer of the connection's own, which grows with the
bytes that arrive, never with a length that is only claimed. Handlers get views into these buffers; no view outlives
its handler.

Replies leave in the order of the requests. While only pipelined requests (Produce) are parked, parsing goes on up to
MAX_IN_FLIGHT; while any other is parked, or the peer does not read, it stops, and TCP carries the back-pressure.
"""

from __future__ import annotations

import socket
from collections import deque
from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from barnabas.model.ports import DiskError
from barnabas.net.api import Api, Exchange, Shortcut
from barnabas.net.outbox import Outbox, Sent
from barnabas.wire import codec, header
from barnabas.wire.reading import Reader
from barnabas.wire.schema import DecodeError, EncodeError, Message

if TYPE_CHECKING:
    from barnabas.net.listener import Listener

MAX_IN_FLIGHT = 1000
"""Parked Produce requests of one connection; librdkafka itself stops at as many."""
MAX_QUEUED_BYTES = 1 << 20
"""Replies that the peer has not read; beyond this its requests wait."""
FIRST_BUFFER_LIMIT = 512 << 10
"""A connection's buffer begins no larger than twice this, whatever size its frame claims."""
WIDEST_BUFFER = 512 << 10
"""Up to this a buffer is doubled for more frames at once, where one frame needs no more."""
WIDENED_BYTES = 16 << 20
"""Of all buffers together: beyond this none is widened."""
SMALL_FRAME_LIMIT = 8 << 20
"""Only Produce carries records: any other request above this is abuse."""
PRODUCE_KEY = 0
FETCH_KEY = 1
WINDOW = 5
"""Requests in flight of most producers. A peer that had more waiting at once sends on without our answers."""
API_VERSIONS_KEY = 18

_FRAME = Struct(">i")
_KEY = Struct(">h")


class _Familiar(NamedTuple):
    beginning: header.Beginning
    size: int
    api: Api
    version: int
    client_id: str | None
    read: Reader
    shortcut: Shortcut | None


class Connection:
    def __init__(self, listener: Listener, sock: socket.socket, peer: str) -> None:
        self.listener_name = listener.name
        self.peer = peer
        self.is_open = True
        self.software = ("unknown", "unknown")
        """Name and version of the client's library, told in ApiVersions (KIP-511)."""
        self._listener = listener
        self._loop = listener.loop
        self._apis = listener.apis
        self._socket = sock
        self._fd = sock.fileno()
        self._buffer: bytearray | None = None
        self._view = memoryview(b"")
        self._start = 0
        self._end = 0
        self._in_flight: deque[Exchange] = deque()
        self._most_in_flight = MAX_IN_FLIGHT
        self._stopped_by: Exchange | None = None
        """The parked request that stops parsing."""
        self._out = Outbox(self._fd, listener.pieces)
        self._reading = True
        self._writing = False
        self._handling = False
        self._runs_ahead = False
        """The peer does not wait for answers before it sends on (WINDOW)."""
        self._waiting_for_disk = False
        self._familiar: _Familiar | None = None
        """What the last request for data was."""
        self.last_active = listener.now()
        """When the peer was last heard of, to within the interval of the listener's sweeps."""
        self._heard = False
        """Since the last sweep."""
        self.frame_since: float | None = None
        """When the frame that is not complete yet began."""
        self._loop.add_reader(self._fd, self._on_readable)

    # Receiving

    def _on_readable(self) -> None:
        own = self._buffer is not None
        view = self._view if own else self._listener.scratch_view
        if own and self._end == len(view):
            if not self._make_room():
                return
            view = self._view
        end = self._end if own else 0
        try:
            count = self._socket.recv_into(view[end:] if end else view)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        if count == 0:
            self.close()
            return
        self._heard = True
        if own:
            self._end = end + count
            self._handle_own()
        else:
            done = self._handle_frames(view, 0, count)
            if self.is_open and done < count:
                self._keep(view[done:count])

    def _handle_own(self) -> None:
        before = self._start
        self._start = self._handle_frames(self._view, before, self._end)
        if self._start == self._end:
            if self._end == len(self._view):
                self._widen()
            self._start = self._end = 0
            self.frame_since = None
        elif self._start != before:
            self.frame_since = self._listener.now()

    def note_activity(self, now: float) -> None:
        """Called by every sweep: bytes that arrive only raise a flag, since asking for the time costs more."""
        if self._heard:
            self._heard = False
            self.last_active = now

    def _keep(self, rest: memoryview) -> None:
        """Moves what is left of a frame out of the shared buffer."""
        size = len(rest)
        wanted = _FRAME.unpack_from(rest)[0] + 4 if size >= 4 else 0
        try:
            # Twice: where frames come faster than they are handled, one call may then receive more than one.
            self._own(bytearray(2 * max(size, min(wanted, FIRST_BUFFER_LIMIT))))
        except MemoryError:
            self._refuse_for_want_of_memory()
            return
        self._view[:size] = rest
        self._start, self._end = 0, size
        self.frame_since = self._listener.now()

    def _make_room(self) -> bool:
        """The buffer is full. Moves its rest to the front, or doubles it for the frame that is still arriving.

        Where the machine has no memory for that the peer is let go: its bytes would call for us again and again.
        """
        try:
            return self._move_or_grow()
        except MemoryError:
            self._refuse_for_want_of_memory()
            return False

    def _move_or_grow(self) -> bool:
        rest = self._end - self._start
        if self._start:
            kept = bytes(self._view[self._start : self._end])
            self._widen()
            self._view[:rest] = kept
        elif not self._may_parse():
            self._pause_reading()
            return False
        elif not self._listener.limits.has_room(len(self._view)):
            self._pause_reading()
            self._listener.limits.shortage.wait(self, self._listener)
            return False
        else:
            grown = bytearray(2 * len(self._view))
            grown[:rest] = self._view
            self._own(grown)
        self._start, self._end = 0, rest
        return True

    def _widen(self) -> None:
        """Whole frames have filled the buffer: with a larger one, one call may receive more of them."""
        size = len(self._view)
        if size < WIDEST_BUFFER and self._listener.limits.buffered_bytes < WIDENED_BYTES:
            with suppress(MemoryError):  # it is as good as it was
                self._own(bytearray(2 * size))

    def _own(self, buffer: bytearray | None) -> None:
        self._listener.limits.buffered_bytes += len(buffer or b"") - len(self._buffer or b"")
        self._buffer, self._view = buffer, memoryview(buffer or b"")

    def release_buffer(self) -> None:
        """Called now and then for connections that are quiet: memory of past bursts goes back."""
        if self._buffer is not None and self._start == self._end:
            self._own(None)
            self._start = self._end = 0

    def read_on(self) -> None:
        """Reading may have stopped for want of room in the buffers of all connections together."""
        if not self._reading and self._may_parse() and self._listener.limits.has_room(len(self._view)):
            self._resume()

    # What is asked where room is short

    @property
    def waits_for_room(self) -> bool:
        return self.is_open and not self._reading and self._may_parse()

    @property
    def buffer_bytes(self) -> int:
        """Also by how much it would grow."""
        return len(self._view)

    @property
    def arrived(self) -> tuple[float | None, int]:
        """Which frame is arriving, and how much of it has come."""
        return self.frame_since, self._end - self._start

    def give_up(self, reason: str) -> None:
        self._refuse(reason)

    # Handling

    def _handle_frames(self, view: memoryview, start: int, end: int) -> int:
        """Handles whole frames; returns where the first one that is not handled begins.

        Of several, the first is answered before the others are looked at, and then whenever their number has doubled:
        a peer that waits for answers before it sends on would otherwise be idle while we work, and we while it does.
        To one that does not wait, all go out together.
        """
        handled = 0
        self._handling = True
        try:
            while end - start >= 4 and self.is_open and self._may_parse():
                size = _FRAME.unpack_from(view, start)[0]
                if size <= 0 or size > self._listener.limits.max_frame_bytes:
                    self._refuse(f"a frame of {size} bytes")
                    break
                stop = start + 4 + size
                if stop > end:
                    self._check_partial(view, start, end, size)
                    break
                self._handle(view, start + 4, stop)
                start = stop
                handled += 1
                if start < end and not self._runs_ahead and not handled & (handled - 1):
                    self._send_ready()
        finally:
            self._handling = False
        if self.is_open:
            self._runs_ahead |= handled > WINDOW
            self._send_ready()
            if self._stopped_by is not None and start < end and self._stopped_by.overtaken is not None:
                self._loop.call_soon(self._stopped_by.overtaken)
        return start

    def _may_parse(self) -> bool:
        return (
            self._stopped_by is None
            and len(self._in_flight) < self._most_in_flight
            and self._out.size < MAX_QUEUED_BYTES
        )

    def _check_partial(self, view: memoryview, start: int, end: int, size: int) -> None:
        if size > SMALL_FRAME_LIMIT and end - start >= 6 and _KEY.unpack_from(view, start + 4)[0] != PRODUCE_KEY:
            self._refuse(f"a request other than Produce of {size} bytes")

    def _handle(self, view: memoryview, start: int, stop: int) -> None:
        familiar = self._familiar
        if familiar is not None and stop - start >= familiar.size:
            correlation_id = familiar.beginning.correlation_id(view, start)
            if correlation_id is not None:
                body = start + familiar.size
                if self._take_shortcut(familiar, view, body, stop, correlation_id):
                    return
                exchange = Exchange(self, familiar.api, familiar.version, correlation_id, familiar.client_id)
                self._read(exchange, familiar.read, view, body, stop)
                return
        self._handle_new(view, start, stop)

    def _take_shortcut(self, familiar: _Familiar, view: memoryview, body: int, stop: int, correlation_id: int) -> bool:
        """Whether the request has been dealt with."""
        shortcut = familiar.shortcut
        if shortcut is None:
            return False
        try:
            answer = shortcut(view, body, stop, correlation_id)
        except Exception as problem:
            exchange = Exchange(self, familiar.api, familiar.version, correlation_id, familiar.client_id)
            self._listener.report_bug(self, exchange, problem)
            self.close()
            return True
        if answer is None:
            return False
        if self._in_flight:
            exchange = Exchange(self, familiar.api, familiar.version, correlation_id, familiar.client_id)
            self._in_flight.append(exchange.answered(answer))
        else:
            self._out.put_reply(answer)
        return True

    def _handle_new(self, view: memoryview, start: int, stop: int) -> None:
        try:
            key, version, correlation_id, client_id, position = header.decode_request_header(view, start, stop)
        except DecodeError as problem:
            self._refuse(f"a request header that cannot be read: {problem}")
            return
        api = self._apis.get(key)
        if api is None or not api.min_version <= version <= api.max_version:
            if key != API_VERSIONS_KEY or api is None:
                self._refuse(f"{api.name if api else f'API key {key}'} version {version}, which is not served")
                return
            # An unknown version of ApiVersions is answered in version 0 with error 35, so that any client can learn.
            api.load()
            self._answer(Exchange(self, api, 0, correlation_id, client_id), None)
            return
        read = codec.reader(api.request or api.load(), version)
        if key <= FETCH_KEY:
            beginning = header.Beginning(view, start, position)
            shortcut = api.shortcut(version)
            self._familiar = _Familiar(beginning, position - start, api, version, client_id, read, shortcut)
        self._read(Exchange(self, api, version, correlation_id, client_id), read, view, position, stop)

    def _read(self, exchange: Exchange, read: Reader, view: memoryview, position: int, stop: int) -> None:
        try:
            request, _ = read(view, position, stop)
        except DecodeError as problem:
            self._refuse(f"a malformed {exchange.api.name} request version {exchange.version}: {problem}")
            return
        self._answer(exchange, request)

    def _answer(self, exchange: Exchange, request: Message | None) -> None:
        try:
            response = exchange.api.handle(exchange, request)
        except Exception as problem:
            self._listener.report_bug(self, exchange, problem)
            self.close()
            return
        if not self.is_open:
            return
        if response is not None:
            self._encode(exchange, response)
        if exchange.chunks is not None and not self._in_flight:
            self._queue(exchange)
            return
        self._in_flight.append(exchange)
        if exchange.chunks is None and not exchange.api.pipelined:
            self._stopped_by = exchange

    def _refuse(self, reason: str) -> None:
        self._listener.report_refusal(self, reason)
        self.close()

    def _refuse_for_want_of_memory(self) -> None:
        self._refuse("there is no memory for the rest of its frame")

    # Answering

    def complete(self, exchange: Exchange, response: Message) -> None:
        """The reply of a parked request has come."""
        if not self.is_open or exchange.chunks is not None:
            return
        self._encode(exchange, response)
        if self._handling or not self.is_open:
            return
        if self._stopped_by is exchange:
            self._stopped_by = None
        self._send_ready()
        if self._start < self._end or not self._reading:
            # Not here: whoever completes this may be another connection's handler, and what waits in our buffer may
            # complete a third one's request. Such a chain would be as deep as there are connections.
            self._loop.call_soon(self._resume)

    def _encode(self, exchange: Exchange, response: Message) -> None:
        try:
            chunks = header.frame_response(response, exchange.version, exchange.correlation_id)
        except EncodeError as problem:
            self._listener.report_bug(self, exchange, problem)
            self.close()
            return
        exchange.chunks = chunks
        exchange.size = len(chunks[0]) if len(chunks) == 1 else codec.size(chunks)  # type: ignore[arg-type]

    def _drain_ready(self) -> None:
        while self._in_flight and self._in_flight[0].chunks is not None:
            self._queue(self._in_flight.popleft())

    def _queue(self, exchange: Exchange) -> None:
        if exchange.chunks:
            self._out.put(exchange.chunks, exchange.size)

    def _resume(self) -> None:
        """Something that held parsing back may be gone."""
        if not self.is_open:
            return
        if self._start < self._end and self._may_parse() and not self._handling:
            self.frame_since = self._listener.now()
            self._handle_own()
        else:
            self._send_ready()
        if self.is_open and not self._reading and self._may_parse():
            self._reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    def _pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    # Sending

    def _send_ready(self) -> None:
        if self._in_flight:
            self._drain_ready()
        if self._out.size and not self._writing and not self._waiting_for_disk:
            self._send()

    def _send(self) -> None:
        """Sends until all is out, the socket is full, or a file range must come from the disk first."""
        try:
            sent = self._out.send()
        except OSError:
            self.close()
            return
        except DiskError as problem:
            self._listener.report_refusal(self, f"reading its answer failed: {problem}")
            self.close()
            return
        if sent is Sent.SOCKET_FULL:
            self._wait_writable()
            return
        if self._writing:  # a socket with room would call for nothing while the disk is waited for
            self._writing = False
            self._loop.remove_writer(self._fd)
        if sent is Sent.NOT_CACHED:
            self._waiting_for_disk = True
            self._listener.read_ahead(self._out.first, self._on_read_ahead)

    def _on_read_ahead(self) -> None:
        self._waiting_for_disk = False
        if self.is_open:
            self._send()
            self._resume()

    def _wait_writable(self) -> None:
        if not self._writing:
            self._writing = True
            self._loop.add_writer(self._fd, self._on_writable)

    def _on_writable(self) -> None:
        self._heard = True
        if not self._waiting_for_disk:
            self._send()
        if self.is_open and not self._writing:
            self._resume()

    # The end

    def halt(self) -> None:
        """Nothing more is taken in; what has been is answered."""
        self._most_in_flight = 0
        self._pause_reading()

    def close(self) -> None:
        if not self.is_open:
            return
        self.is_open = False
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._socket.close()
        self._own(None)
        self._out.clear()
        parked = [exchange for exchange in self._in_flight if exchange.chunks is None]
        self._in_flight.clear()
        self._listener.forget(self)
        for exchange in parked:
            if exchange.abandoned is not None:
                exchange.abandoned()

    @property
    def waits_for_peer(self) -> bool:
        """A frame has begun and it is the peer's turn to finish it."""
        return self.frame_since is not None and self._may_parse()

    @property
    def may_be_idle(self) -> bool:
        """Silence is no sign that the peer is gone while a request of its is parked, as long as we listen at all."""
        return not self._reading or (self._stopped_by is None and not self._in_flight)
