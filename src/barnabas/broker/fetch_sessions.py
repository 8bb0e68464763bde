"""Incremental fetch sessions (KIP-227): a client names its partitions once, then only what changes.

The broker keeps the partitions of each session with the client's positions. A response contains only partitions with
news: records, an error, or a high watermark or log start offset that differs from the last response.

    request (id, epoch)      meaning
    (0, -1)                  no session
    (0, 0)                   begin one
    (n, 0)                   end session n and begin another
    (n, -1)                  end session n; this fetch has none
    (n, k > 0)               the k-th fetch of session n
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.core.replication.leader import Follower, LeaderState
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import ZERO_UUID
from barnabas.model.ports import Clock, Random
from barnabas.runtime.partition import Partition
from barnabas.wire.api.fetch import FetchPartition, FetchRequest

EVICTION_MS = 120_000
"""A session that was used within this time is not taken away for another."""
MAX_EPOCH = (1 << 31) - 1
MAX_TARGETS = 100_000
"""Partitions of all sessions together. Beyond them fetches are answered in full, as where all slots are taken."""

Key = tuple[str | bytes, int]
"""(topic name or, from version 13, topic id; partition)."""


class Settled(NamedTuple):
    """A replica that held all of its leader's log."""

    partition: Partition
    leader: LeaderState
    follower: Follower

    def holds(self, target: Target, node_id: int, now_ms: int) -> bool:
        """Whether all is committed, the follower is in sync and has been told so; counts its fetch."""
        partition, leader, follower = self
        log = partition.log
        if (
            partition.leader is not leader
            or not target.wanted.fetch_offset == log.log_end_offset == partition.high_watermark == target.high_watermark
            or log.log_start_offset != target.log_start_offset
            or not follower.is_eligible
            or node_id not in leader.in_sync_replicas
        ):
            return False
        follower.fetched_ms = follower.caught_up_ms = now_ms
        return True


class Target:
    """One partition of a fetch."""

    __slots__ = ("high_watermark", "log_start_offset", "number", "settled", "topic", "wanted")

    def __init__(self, topic: str | bytes, wanted: FetchPartition) -> None:
        self.topic = topic
        self.number = wanted.partition
        self.wanted = wanted
        self.high_watermark = -1
        """As last told to the client, with log_start_offset."""
        self.log_start_offset = -1
        self.settled: Settled | None = None
        """Where a follower has nothing to fetch: what tells whether that is still so, without reading again."""


class FetchSession:
    __slots__ = ("by_id", "last_used_ms", "next_epoch", "session_id", "targets")

    def __init__(self, session_id: int, *, by_id: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.by_id = by_id
        self.next_epoch = 1
        self.last_used_ms = now_ms
        self.targets: dict[Key, Target] = {}
        """In the order in which they are read: those that gave records go to the end, so that all get their turn."""

    def update(self, request: FetchRequest) -> None:
        for topic in request.topics:
            name = topic.topic_id if self.by_id else topic.topic
            for wanted in topic.partitions:
                known = self.targets.get((name, wanted.partition))
                if known is None:
                    self.targets[name, wanted.partition] = Target(name, wanted)
                else:
                    known.wanted = wanted
                    known.settled = None
        for forgotten in request.forgotten_topics_data:
            name = forgotten.topic_id if self.by_id else forgotten.topic
            for number in forgotten.partitions:
                self.targets.pop((name, number), None)

    def to_the_end(self, targets: Iterable[Target]) -> None:
        for target in targets:
            key = (target.topic, target.number)
            if key in self.targets:
                self.targets[key] = self.targets.pop(key)


class FetchContext:
    """How one fetch is to be answered."""

    __slots__ = ("incremental", "session", "targets")

    def __init__(self, targets: list[Target], session: FetchSession | None, *, incremental: bool) -> None:
        self.targets = targets
        self.session = session
        self.incremental = incremental

    @property
    def session_id(self) -> int:
        return self.session.session_id if self.session is not None else 0


class FetchSessions:
    def __init__(self, slots: int, clock: Clock, random: Random) -> None:
        self._slots = slots
        self._clock = clock
        self._random = random
        self._sessions: dict[int, FetchSession] = {}
        """The least recently used first."""

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, version: int) -> FetchContext:
        by_id = version >= 13
        if request.session_epoch in (0, -1):
            if request.session_id:
                self._sessions.pop(request.session_id, None)
            return self._full(request, by_id=by_id)
        session = self._find(request, by_id=by_id)
        if request.topics and not self._has_room(request):
            del self._sessions[session.session_id]
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)  # the client begins anew, and gets no session
        session.update(request)
        return FetchContext(list(session.targets.values()), session, incremental=True)

    def _full(self, request: FetchRequest, *, by_id: bool) -> FetchContext:
        wants_session = request.session_epoch == 0 and request.topics and self._has_room(request)
        session = self._begin(by_id=by_id) if wants_session else None
        if session is not None:
            session.update(request)
            return FetchContext(list(session.targets.values()), session, incremental=False)
        named = (
            (topic.topic_id if by_id else topic.topic, wanted)
            for topic in request.topics
            for wanted in topic.partitions
        )
        targets = {(name, wanted.partition): Target(name, wanted) for name, wanted in named}  # each once, as in Kafka
        return FetchContext(list(targets.values()), None, incremental=False)

    def _has_room(self, request: FetchRequest) -> bool:
        kept = sum(len(session.targets) for session in self._sessions.values())
        return kept + sum(len(topic.partitions) for topic in request.topics) <= MAX_TARGETS

    def _find(self, request: FetchRequest, *, by_id: bool) -> FetchSession:
        session = self._sessions.pop(request.session_id, None)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        self._sessions[session.session_id] = session
        if session.by_id != by_id:
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.next_epoch != request.session_epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.next_epoch = 1 if session.next_epoch == MAX_EPOCH else session.next_epoch + 1
        session.last_used_ms = self._clock.monotonic_ms()
        return session

    def _begin(self, *, by_id: bool) -> FetchSession | None:
        """None where all slots hold sessions in use: the client is then answered in full each time."""
        now_ms = self._clock.monotonic_ms()
        if len(self._sessions) >= self._slots:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.last_used_ms < EVICTION_MS:
                return None
            del self._sessions[oldest.session_id]
        session_id = self._random.randrange(1, 1 << 31)
        while session_id in self._sessions:
            session_id = self._random.randrange(1, 1 << 31)
        session = self._sessions[session_id] = FetchSession(session_id, by_id=by_id, now_ms=now_ms)
        return session


def topic_of(target: Target) -> tuple[str, bytes]:
    """(name, id) as a response carries it; one of the two is empty."""
    return (target.topic, ZERO_UUID) if isinstance(target.topic, str) else ("", target.topic)
