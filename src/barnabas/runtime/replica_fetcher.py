"""Follows one leader: fetches what it has for all partitions that this broker follows there, and appends it.

One request is in flight, in an incremental session (KIP-227): it names only the partitions whose position has changed.
The first request, which begins the session, is answered at once, since no other can follow it before. A partition that
is added while the leader holds a later one back for want of records makes a second request follow; the leader then
answers the first at once. Records of a response that no longer fits (the log was cut, another leader was elected, a
pipelined request brought them already) are discarded.

    add --> fetching --diverging epoch--> cut, fetch again
               |--offset out of range--> start anew at the leader's log start
               |--an error of this partition alone, or throttled--> forgotten for a while, then fetching again
               +--a topic that flushes--> the next request waits for the flush: a fetch says "I hold all before"
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec import Struct

from barnabas.core.replication.follower import truncation_offset
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ports import Clock, Timer
from barnabas.runtime.partition import Partition
from barnabas.runtime.replication_throttle import ReplicationThrottle
from barnabas.wire.api.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from barnabas.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.schema import Message

Key = tuple[bytes, int]
"""(topic id, partition)."""

Send = Callable[[Message, int, Callable[[Any], None]], None]
"""Sends to the leader; as ``Network.send``."""

MAX_IN_FLIGHT = 2
EARLIEST_LOCAL = -4
"""The timestamp that asks ListOffsets where the leader's log begins."""
MAX_EPOCH = (1 << 31) - 1
SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
METADATA_ERRORS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
    }
)
"""One of the two has newer metadata than the other, which soon follows."""


class FetchSettings(Struct, frozen=True, kw_only=True):
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 1 << 20
    """Of one partition."""
    response_max_bytes: int = 10 << 20
    timeout_ms: int = 30_000
    backoff_ms: int = 1000
    """Of a partition that cannot be fetched."""
    retry_ms: int = 50
    """After a request that failed as a whole."""


class _Following(Struct):
    partition: Partition
    not_before_ms: int = 0
    sent: tuple[int, int, int] | None = None
    """(fetch offset, last fetched epoch, leader epoch) as the leader's session has it; None where it has none."""
    sent_in: int = 0
    """The number of the request that said so."""

    def is_answered_by(self, number: int) -> bool:
        """Whether the answer to that request is about the position that the partition still has."""
        return self.sent_in <= number and self.sent == _position(self.partition)


class ReplicaFetcher:
    def __init__(
        self,
        *,
        leader_id: int,
        node_id: int,
        broker_epoch: Callable[[], int],
        send: Send,
        clock: Clock,
        settings: FetchSettings,
        throttle: ReplicationThrottle,
        report: Callable[..., None],
    ) -> None:
        self.leader_id = leader_id
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._send_request = send
        self._clock = clock
        self._settings = settings
        self._throttle = throttle
        self._report = report
        self._following: dict[Key, _Following] = {}
        self._moved: dict[Key, None] = {}
        """Partitions whose position may differ from what the leader's session has."""
        self._forgotten: dict[Key, None] = {}
        """In the leader's session, and to be taken out of it."""
        self._session_id = 0
        self._session_epoch = 0
        self._requests = 0
        self._generation = 0
        """Of the session: responses of a former one are discarded."""
        self._is_first = True
        """Whether the next request is the first of its generation."""
        self._in_flight = 0
        self._flushing = 0
        self._will_advance = False
        self._timer: Timer | None = None
        self._is_closed = False
        self.failures = 0
        """Requests in a row that failed as a whole."""

    # What is followed

    def add(self, partition: Partition) -> None:
        """Also after its leader epoch has changed. What is added in one go is asked for in one request."""
        key = partition.topic_id, partition.name.partition
        former = self._following.get(key)
        self._following[key] = _Following(partition)
        if former is not None:
            self._following[key].sent, self._following[key].sent_in = former.sent, former.sent_in
        self._moved[key] = None
        self._forgotten.pop(key, None)
        if not self._will_advance:
            self._will_advance = True
            self._clock.call_at(self._clock.monotonic_ms(), self._on_added)

    def _on_added(self) -> None:
        self._will_advance = False
        self._advance()

    def remove(self, partition: Partition) -> None:
        key = partition.topic_id, partition.name.partition
        following = self._following.pop(key, None)
        self._moved.pop(key, None)
        if following is not None and following.sent is not None:
            self._forgotten[key] = None

    def __len__(self) -> int:
        return len(self._following)

    def close(self) -> None:
        self._is_closed = True
        self._following.clear()
        if self._timer is not None:
            self._timer.cancel()

    # Requests

    def _advance(self) -> None:
        """Sends the next request where there is something new to say, or none is in flight."""
        if self._is_closed or not self._following or self._flushing or self._in_flight >= MAX_IN_FLIGHT:
            return
        if self._timer is not None:
            return  # backing off
        changed = self._changed()
        if not self._in_flight and not any(following.not_before_ms == 0 for following in self._following.values()):
            self._wait_for_backoff()
        elif not self._in_flight or (changed and self._session_id):
            self._send(changed)

    def _changed(self) -> dict[Key, _Following]:
        """Partitions whose position differs from what the leader's session has."""
        now_ms = self._clock.monotonic_ms()
        changed = {}
        for key in list(self._moved):
            following = self._following[key]
            if following.not_before_ms > now_ms:
                continue
            following.not_before_ms = 0
            if following.sent != _position(following.partition):
                changed[key] = following
            else:
                del self._moved[key]
        return changed

    def _wait_for_backoff(self) -> None:
        due_ms = min(following.not_before_ms for following in self._following.values())
        self._timer = self._clock.call_at(due_ms, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._advance()

    def _send(self, changed: dict[Key, _Following]) -> None:
        settings = self._settings
        self._requests += 1
        number, generation = self._requests, self._generation
        for key, following in changed.items():
            following.sent, following.sent_in = _position(following.partition), number
            del self._moved[key]
        request = FetchRequest(
            replica_state=ReplicaState(self._node_id, self._broker_epoch()),
            max_wait_ms=0 if self._is_first else settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=self._topics(changed),
            forgotten_topics_data=[
                ForgottenTopic(topic_id=key[0], partitions=[key[1]]) for key in self._forgotten if key not in changed
            ],
        )
        self._forgotten.clear()
        self._is_first = False
        if self._session_id:
            self._session_epoch = 1 if self._session_epoch == MAX_EPOCH else self._session_epoch + 1
        self._in_flight += 1
        timeout_ms = settings.timeout_ms + settings.max_wait_ms
        self._send_request(request, timeout_ms, lambda answer: self._on_answer(generation, number, answer))

    def _topics(self, changed: dict[Key, _Following]) -> list[FetchTopic]:
        topics: dict[bytes, FetchTopic] = {}
        for (topic_id, number), following in changed.items():
            topic = topics.setdefault(topic_id, FetchTopic(topic_id=topic_id, partitions=[]))
            log = following.partition.log
            offset, last_epoch, leader_epoch = _position(following.partition)
            topic.partitions.append(
                FetchPartition(number, leader_epoch, offset, last_epoch, log.log_start_offset, self._settings.max_bytes)
            )
        return list(topics.values())

    # Responses

    def _on_answer(self, generation: int, number: int, answer: Any) -> None:
        self._in_flight -= 1
        if self._is_closed or generation != self._generation:
            self._advance()
            return
        problem = answer if isinstance(answer, ApiError) else None
        if problem is None and answer.error_code:
            problem = ApiError(ErrorCode(answer.error_code))
        if problem is not None:
            self._on_failure(problem)
            return
        self.failures = 0
        if not self._session_id and answer.session_id:
            self._session_id, self._session_epoch = answer.session_id, 1
        elif not answer.session_id:
            self._forget_session()
            self._is_first = False  # the leader has no room for a session: every request is a full one, and waits
        for topic in answer.responses:
            for data in topic.partitions:
                key = topic.topic_id, data.partition_index
                following = self._following.get(key)
                if following is not None and following.is_answered_by(number):
                    self._moved[key] = None
                    self._take(key, following, data)
        self._advance()

    def _on_failure(self, problem: ApiError) -> None:
        """The session is lost with the request: the leader may or may not have advanced it."""
        self._forget_session()
        if problem.code in SESSION_ERRORS:
            self._advance()
            return
        self.failures += 1
        if self.failures & (self.failures - 1) == 0:
            self._report("a leader cannot be fetched from", leader=self.leader_id, reason=str(problem))
        if self._timer is None:
            delay_ms = min(self._settings.retry_ms << min(self.failures - 1, 10), self._settings.backoff_ms)
            self._timer = self._clock.call_at(self._clock.monotonic_ms() + delay_ms, self._on_timer)

    def _forget_session(self) -> None:
        self._generation += 1
        self._is_first = True
        self._session_id = self._session_epoch = 0
        self._forgotten.clear()
        self._moved = dict.fromkeys(self._following)
        for following in self._following.values():
            following.sent = None

    def _take(self, key: Key, following: _Following, data: PartitionData) -> None:
        partition = following.partition
        try:
            self._apply(partition, data)
        except ApiError as problem:
            if problem.code in METADATA_ERRORS:
                self._back_off(key, following, self._settings.retry_ms)
            elif problem.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._back_off(key, following, self._settings.backoff_ms)
                self._ask_start(key, following)
            else:
                self._report("a partition cannot be replicated", partition=str(partition.name), reason=str(problem))
                self._back_off(key, following, self._settings.backoff_ms)
            return
        if data.records:
            delay_ms = self._throttle.on_fetched(partition, len(data.records))  # type: ignore[arg-type]  # bytes or a view
            if delay_ms:
                self._back_off(key, following, delay_ms)
        if partition.durable_end < partition.log_end_offset:
            self._flushing += 1
            partition.when_durable(partition.log_end_offset - 1, lambda code: self._on_flushed(key, code))

    def _apply(self, partition: Partition, data: PartitionData) -> None:
        """Raises ApiError."""
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and data.log_start_offset >= 0:
            partition.start_anew_at(data.log_start_offset)
        elif data.error_code:
            raise ApiError(ErrorCode(data.error_code))
        elif data.diverging_epoch.end_offset >= 0:
            offset = truncation_offset(
                leader_epoch=data.diverging_epoch.epoch,
                leader_end_offset=data.diverging_epoch.end_offset,
                end_of_epoch=partition.end_of_epoch,
                log_end_offset=partition.log_end_offset,
            )
            if offset < partition.high_watermark:
                self._report(
                    "a log is cut below its high watermark",
                    partition=str(partition.name),
                    offset=offset,
                    high_watermark=partition.high_watermark,
                )
            partition.truncate_to(offset)
        else:
            records = data.records
            batches = records if isinstance(records, memoryview | bytes) else b""
            partition.replicate(batches, data.high_watermark, data.log_start_offset)

    def _ask_start(self, key: Key, following: _Following) -> None:
        """A Kafka leader does not say with the error where its log begins."""
        partition = following.partition
        wanted = ListOffsetsPartition(partition.name.partition, partition.leader_epoch, EARLIEST_LOCAL)
        request = ListOffsetsRequest(self._node_id, topics=[ListOffsetsTopic(partition.name.topic, [wanted])])

        def answered(answer: Any) -> None:
            if isinstance(answer, ApiError) or self._following.get(key) is not following:
                return
            found = answer.topics[0].partitions[0]
            if not found.error_code and found.offset > partition.log_end_offset:
                with suppress(ApiError):  # the next fetch says it again
                    partition.start_anew_at(found.offset)

        self._send_request(request, self._settings.timeout_ms, answered)

    def _back_off(self, key: Key, following: _Following, delay_ms: int) -> None:
        following.not_before_ms = self._clock.monotonic_ms() + delay_ms
        self._moved[key] = None
        if following.sent is not None:
            following.sent = None
            self._forgotten[key] = None
        self._clock.call_at(following.not_before_ms, lambda: self._on_backed_off(following))

    def _on_backed_off(self, following: _Following) -> None:
        following.not_before_ms = 0  # timers may be early by the clock's resolution
        self._advance()

    def _on_flushed(self, key: Key, code: ErrorCode) -> None:
        self._flushing -= 1
        following = self._following.get(key)
        if code is not ErrorCode.NONE and following is not None:
            self._back_off(key, following, self._settings.backoff_ms)
        self._clock.call_at(self._clock.monotonic_ms(), self._advance)


def _position(partition: Partition) -> tuple[int, int, int]:
    """A follower asks for what follows all that it holds durably: its fetch counts as an acknowledgement."""
    return partition.log_end_offset, partition.log.latest_epoch, partition.leader_epoch
