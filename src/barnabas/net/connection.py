"""One client connection: frames in, frames out, in order.

A connection without a partial frame owns no buffer: bytes are received into one that all connections share, and whole
frames are handled in place. What is left of a frame moves to a buffer of the connection's own, which grows with the
bytes that arrive, never with a length that is only claimed. Handlers get views into these buffers; no view outlives
its handler.

Replies leave in the order of the requests. While only pipelined requests (Produce) are parked, parsing goes on up to
MAX_IN_FLIGHT; while any other is parked, or the peer does not read, it stops, and TCP carries the back-pressure.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from barnabas.model.ports import DiskError
from barnabas.model.session import Exchange, Refused
from barnabas.net.channel import PlainChannel
from barnabas.net.frames import claimed_size, end_of_frame
from barnabas.net.outbox import Outbox, Sent

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
WINDOW = 5
"""Requests in flight of most producers. A peer that had more waiting at once sends on without our answers."""


class _Reply:
    """A reply that was ready at once and waits for those before it."""

    __slots__ = ("chunks", "size", "throttle_ms")
    is_pipelined = True

    def __init__(self, reply: bytes) -> None:
        self.chunks: list[Any] | None = [reply]
        self.size = len(reply)
        self.throttle_ms = 0

    def abandon(self) -> None: ...

    def overtake(self) -> None: ...


class Connection:
    def __init__(self, listener: Listener, channel: PlainChannel, peer: str) -> None:
        self.listener_name = listener.name
        self.peer = peer
        self.is_open = True
        self._listener = listener
        self._loop = listener.loop
        self._channel = channel
        self._session = listener.pipeline.open(self, listener.name, peer)
        self._buffer: bytearray | None = None
        self._view = memoryview(b"")
        self._start = 0
        self._end = 0
        self._in_flight: deque[Exchange] = deque()
        self._most_in_flight = MAX_IN_FLIGHT
        self._stopped_by: Exchange | None = None
        """The parked request that stops parsing."""
        self._out = Outbox(channel, listener.pieces)
        self._reading = True
        self._writing = False
        self._handling = False
        self._runs_ahead = False
        """The peer does not wait for answers before it sends on (WINDOW)."""
        self._waiting_for_disk = False
        self._is_muted = False
        """The peer went beyond its quota, and is not read from for a while."""
        self.last_active = listener.now()
        """When the peer last sent something, to within the interval of the listener's sweeps."""
        self._heard = False
        """Since the last sweep."""
        self.frame_since: float | None = None
        """When the frame that is not complete yet began."""
        channel.watch_readable(self._on_readable)

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
            count = self._channel.receive_into(view[end:] if end else view)
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
        """Moves a partial frame out of the shared buffer."""
        size = len(rest)
        wanted = claimed_size(rest)
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

        Without memory for that the connection is closed: its socket would stay readable, and the loop would spin.
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
        """Frees the buffer of a connection without a partial frame. Called periodically."""
        if self._buffer is not None and self._start == self._end:
            self._own(None)
            self._start = self._end = 0

    def read_on(self) -> None:
        """Resumes reading where it stopped because the buffers of all connections were full."""
        if not self._reading and self._may_parse() and self._listener.limits.has_room(len(self._view)):
            self._resume()

    # For ``shortage``

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
        receive, max_frame_bytes = self._session.receive, self._listener.limits.max_frame_bytes
        self._handling = True
        try:
            while self.is_open and self._may_parse():
                stop = end_of_frame(view, start, end, max_frame_bytes)
                if not stop:
                    break
                self._take(receive(view, start + 4, stop))
                start = stop
                handled += 1
                if start < end and not self._runs_ahead and not handled & (handled - 1):
                    self._send_ready()
        except Refused as problem:
            self._refuse(str(problem))
        finally:
            self._handling = False
        if self.is_open:
            self._runs_ahead |= handled > WINDOW
            self._send_ready()
            if self._stopped_by is not None and start < end:
                self._loop.call_soon(self._stopped_by.overtake)
        return start

    def _may_parse(self) -> bool:
        return (
            self._stopped_by is None
            and not self._is_muted
            and len(self._in_flight) < self._most_in_flight
            and self._out.size < MAX_QUEUED_BYTES
        )

    def _take(self, outcome: Exchange | bytes | None) -> None:
        """What the pipeline made of a request: a reply, a request that is answered or parked, or None to go."""
        if outcome is None or not self.is_open:
            self.close()
        elif isinstance(outcome, bytes):
            if self._in_flight:
                self._in_flight.append(_Reply(outcome))
            else:
                self._out.put_reply(outcome)
        elif outcome.chunks is not None and not self._in_flight:
            self._queue(outcome)
        else:
            self._in_flight.append(outcome)
            if outcome.chunks is None and not outcome.is_pipelined:
                self._stopped_by = outcome

    def _refuse(self, reason: str) -> None:
        self._listener.report_refusal(self, reason)
        self.close()

    def _refuse_for_want_of_memory(self) -> None:
        self._refuse("there is no memory for the rest of its frame")

    # Answering

    def on_reply(self, exchange: Exchange) -> None:
        """The reply of a parked request has come."""
        if self._handling or not self.is_open:
            return
        if self._stopped_by is exchange:
            self._stopped_by = None
        self._send_ready()
        if self._start < self._end or not self._reading:
            # Not here: the caller may be the handler of another connection, and a request in our buffer may complete
            # one of a third connection. Such recursion would be as deep as there are connections.
            self._loop.call_soon(self._resume)

    def _drain_ready(self) -> None:
        while self._in_flight and self._in_flight[0].chunks is not None:
            self._queue(self._in_flight.popleft())

    def _queue(self, exchange: Exchange) -> None:
        if exchange.chunks:
            self._out.put(exchange.chunks, exchange.size)
        if exchange.throttle_ms and not self._is_muted:
            self._is_muted = True
            self._loop.call_later(exchange.throttle_ms / 1000, self._unmute)

    def _unmute(self) -> None:
        self._is_muted = False
        self._resume()

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
            self._channel.watch_readable(self._on_readable)

    def _pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._channel.unwatch_readable()

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
            self._channel.unwatch_writable()
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
            self._channel.watch_writable(self._on_writable)

    def _on_writable(self) -> None:
        self._heard = True
        if not self._waiting_for_disk:
            self._send()
        if self.is_open and not self._writing:
            self._resume()

    # The end

    def halt(self) -> None:
        """Stops reading; requests already received are answered."""
        self._most_in_flight = 0
        self._pause_reading()

    def close(self) -> None:
        if not self.is_open:
            return
        self.is_open = False
        self._channel.close()
        self._own(None)
        self._out.clear()
        parked = [exchange for exchange in self._in_flight if exchange.chunks is None]
        self._in_flight.clear()
        self._listener.forget(self)
        for exchange in parked:
            exchange.abandon()

    @property
    def waits_for_peer(self) -> bool:
        """A frame has begun and it is the peer's turn to finish it."""
        return self.frame_since is not None and self._may_parse()

    @property
    def may_be_idle(self) -> bool:
        """Silence is no sign that the peer is gone while a request of its is parked, as long as we listen at all."""
        return not self._reading or (self._stopped_by is None and not self._in_flight)
