"""Simulated clients that speak Kafka's protocol and record what they saw: producer, consumer, group member."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from barnabas.model.errors import ErrorCode
from barnabas.sim.clock import Event, Scheduler
from barnabas.sim.cluster import SimNode
from barnabas.sim.history import History, Violation
from barnabas.sim.network import Connection
from barnabas.wire import catalogue, codec, header
from barnabas.wire.api import (
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    offset_commit,
    offset_fetch,
    produce,
    sync_group,
)
from barnabas.wire.batch import iterate
from barnabas.wire.records import Record, decode_batch, encode_batch
from barnabas.wire.schema import Message

REQUEST_TIMEOUT_MS = 4000
RECONNECT_MS = (5.0, 60.0)
PAUSE_MS = (1.0, 40.0)
SESSION_MS = 6000

PASSING = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
"""What a client tries again after."""


class World(Protocol):
    scheduler: Scheduler
    history: History

    def node_for(self, client: Client) -> SimNode: ...


class Client(ABC):
    """One connection and one request at a time."""

    def __init__(self, world: World, name: str, rng: random.Random) -> None:
        self.world = world
        self.name = name
        self.random = rng
        self.is_done = False
        self._connection: Connection | None = None
        self._then: Callable[[Any], None] | None = None
        self._expected: tuple[type[Message], int, int] | None = None
        self._timer: Event | None = None
        self._correlation_id = 0
        self._connections = 0

    def start(self) -> None:
        self.later(self.run)

    @abstractmethod
    def run(self) -> None:
        """What the client does first."""

    def later(self, callback: Callable[[], None], span: tuple[float, float] = PAUSE_MS) -> None:
        self.world.scheduler.after(self.random.uniform(*span), callback)

    def call(self, request: Message, version: int, then: Callable[[Any], None]) -> None:
        """``then`` gets the response, or None: nobody knows then whether it was carried out."""
        if self._connection is None or not self._connection.is_open:
            self._connect()
        if self._connection is None:
            self.later(lambda: then(None), RECONNECT_MS)
            return
        self._correlation_id += 1
        self._then = then
        self._expected = (catalogue.api_classes(request.api_key)[1], version, self._correlation_id)
        self._timer = self.world.scheduler.after(REQUEST_TIMEOUT_MS, self._on_timeout)
        chunks = header.frame_request(request, version, self._correlation_id, self.name)
        self._connection.send(b"".join(chunks))  # type: ignore[arg-type]

    def _connect(self) -> None:
        """What a former connection still says is not heard."""
        self._connections += 1
        number = self._connections
        self._connection = self.world.node_for(self).connect(
            self.name, lambda data: self._on_frame(number, data), lambda: self._on_end(number)
        )

    def _on_frame(self, number: int, data: bytes) -> None:
        if self._expected is None or number != self._connections:
            return
        response, version, correlation_id = self._expected
        found, body = header.decode_response_header(
            data, 4, len(data), header.response_header_version(response, version)
        )
        if found != correlation_id:
            raise Violation(f"{self.name} got the reply to {found} for {correlation_id}")
        self._finish(codec.reader(response, version)(data, body, len(data))[0])

    def _on_timeout(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self._finish(None)

    def _on_end(self, number: int) -> None:
        if number == self._connections:
            self._connection = None
            self._finish(None)

    def _finish(self, outcome: Any) -> None:
        then, self._then, self._expected = self._then, None, None
        if self._timer is not None:
            self._timer.cancel()
        if then is not None:
            then(outcome)


class Producer(Client):
    """Idempotent, acks=all; a batch whose outcome is not known is sent again until it is."""

    def __init__(self, world: World, name: str, rng: random.Random, topics: list[tuple[str, int]]) -> None:
        super().__init__(world, name, rng)
        self._partitions = [(topic, number) for topic, count in topics for number in range(count)]
        self._producer_id = -1
        self._sequences: dict[tuple[str, int], int] = {}
        self.sent = 0

    def run(self) -> None:
        request = init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        self.call(request, 4, self._initialized)

    def _initialized(self, response: Any) -> None:
        if response is None or ErrorCode(response.error_code) in PASSING:
            self.later(self.run)
            return
        if response.error_code:
            raise Violation(f"{self.name} gets no producer id: {ErrorCode(response.error_code).name}")
        self._producer_id = response.producer_id
        self._send_next()

    def _send_next(self) -> None:
        if self.is_done:
            return
        place = self.random.choice(self._partitions)
        sequence = self._sequences.get(place, 0)
        values = [f"{self.name}/{sequence + number}".encode() for number in range(self.random.choice([1, 1, 1, 3]))]
        self._sequences[place] = sequence + len(values)
        self.world.history.sent.setdefault((*place, self.name), []).extend(values)
        self.sent += len(values)
        self._send(place, sequence, values)

    def _send(self, place: tuple[str, int], sequence: int, values: list[bytes]) -> None:
        # Timestamps of long ago: what the broker remembers must not depend on them.
        records = [Record(-1, 1_000_000, b"key", value) for value in values]
        batch = encode_batch(records, producer_id=self._producer_id, producer_epoch=0, base_sequence=sequence)
        data = produce.TopicProduceData(place[0], partition_data=[produce.PartitionProduceData(place[1], batch)])
        request = produce.ProduceRequest(None, -1, 2000, [data])
        self.call(request, 9, lambda response: self._sent(response, place, sequence, values))

    def _sent(self, response: Any, place: tuple[str, int], sequence: int, values: list[bytes]) -> None:
        code = ErrorCode.REQUEST_TIMED_OUT
        if response is not None:
            answer = response.responses[0].partition_responses[0]
            code = ErrorCode(answer.error_code)
            if code is ErrorCode.NONE:
                for number, value in enumerate(values):
                    self.world.history.acknowledge(*place, answer.base_offset + number, value)
                self.later(self._send_next)
                return
        if code not in PASSING:
            raise Violation(f"{self.name} is answered {code.name} for sequence {sequence} of {place}")
        self.later(lambda: self._send(place, sequence, values))


class Consumer(Client):
    """Reads every partition from its beginning; offsets must follow each other without a gap."""

    def __init__(self, world: World, name: str, rng: random.Random, topics: list[tuple[str, int]]) -> None:
        super().__init__(world, name, rng)
        self.positions = {(topic, number): 0 for topic, count in topics for number in range(count)}

    def run(self) -> None:
        if self.is_done:
            return
        by_topic: dict[str, list[fetch.FetchPartition]] = {}
        for (topic, number), offset in self.positions.items():
            wanted = fetch.FetchPartition(number, fetch_offset=offset, partition_max_bytes=1 << 20)
            by_topic.setdefault(topic, []).append(wanted)
        topics = [fetch.FetchTopic(topic, partitions=partitions) for topic, partitions in by_topic.items()]
        self.call(fetch.FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, topics=topics), 11, self._fetched)

    def _fetched(self, response: Any) -> None:
        for topic in response.responses if response is not None else ():
            for data in topic.partitions:
                code = ErrorCode(data.error_code)
                if code is ErrorCode.NONE:
                    self._take((topic.topic, data.partition_index), bytes(data.records or b""))
                elif code not in PASSING:
                    position = self.positions[topic.topic, data.partition_index]
                    raise Violation(f"{self.name} is answered {code.name} at {position} of {topic.topic}")
        self.later(self.run)

    def _take(self, place: tuple[str, int], content: bytes) -> None:
        for position, _ in iterate(content):
            for record in decode_batch(content, position):
                if record.offset < self.positions[place]:
                    continue
                if record.offset != self.positions[place]:
                    raise Violation(f"{self.name} read {record.offset} of {place} after {self.positions[place] - 1}")
                self.world.history.see(*place, record.offset, bytes(record.value or b""))
                self.positions[place] = record.offset + 1


class Member(Client):
    """A member of a classic group: joins, assigns where it leads, heartbeats, commits, and reads its commits back.

    It restarts as a new member now and then, so that there are rebalances.
    """

    def __init__(self, world: World, name: str, rng: random.Random, group: str, topic: str, partitions: int) -> None:
        super().__init__(world, name, rng)
        self._group = group
        self._topic = topic
        self._partitions = partitions
        self._member_id = ""
        self._generation = -1
        self._owned: dict[int, int] = {}
        self.rounds = 0

    def run(self) -> None:
        request = find_coordinator.FindCoordinatorRequest(key=self._group, key_type=0)
        self.call(request, 3, self._found)

    def _found(self, response: Any) -> None:
        if response is None or response.error_code:
            self.later(self.run)
        else:
            self._join()

    def _join(self) -> None:
        if self.is_done:
            return
        protocol = join_group.JoinGroupRequestProtocol("range", b"")
        request = join_group.JoinGroupRequest(
            self._group, SESSION_MS, SESSION_MS, self._member_id, None, "consumer", [protocol]
        )
        self.call(request, 5, self._joined)

    def _joined(self, response: Any) -> None:
        if response is None:
            self.later(self.run)
            return
        code = ErrorCode(response.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = response.member_id
            self._join()
            return
        if code is not ErrorCode.NONE:
            self._start_over(code)
            return
        self._member_id, self._generation = response.member_id, response.generation_id
        assignments = []
        if response.leader == response.member_id:
            members = sorted(member.member_id for member in response.members)
            assignments = [
                sync_group.SyncGroupRequestAssignment(
                    member, bytes(number for number in range(self._partitions) if number % len(members) == index)
                )
                for index, member in enumerate(members)
            ]
        request = sync_group.SyncGroupRequest(
            self._group, self._generation, self._member_id, None, assignments=assignments
        )
        self.call(request, 3, self._synced)

    def _synced(self, response: Any) -> None:
        if response is None:
            self.later(self._join)
            return
        if response.error_code:
            self._start_over(ErrorCode(response.error_code))
            return
        self._owned = dict.fromkeys(bytes(response.assignment), -1)
        for number in self._owned:
            self.world.history.own(self._group, self._generation, self._topic, number, self._member_id)
        self._read_offsets()

    def _start_over(self, code: ErrorCode) -> None:
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self._member_id = ""
        elif code not in PASSING and code not in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            raise Violation(f"{self.name} is answered {code.name}")
        self.later(self.run if code in PASSING else self._join)

    def _read_offsets(self) -> None:
        history = self.world.history
        least = {number: history.committed_so_far(self._group, self._topic, number) for number in self._owned}
        topics = [offset_fetch.OffsetFetchRequestTopic(self._topic, list(self._owned))]
        request = offset_fetch.OffsetFetchRequest(self._group, topics=topics)
        self.call(request, 5, lambda response: self._told_offsets(response, least))

    def _told_offsets(self, response: Any, least: dict[int, int]) -> None:
        if response is None or response.error_code:
            self.later(self.run)
            return
        for topic in response.topics:
            for answer in topic.partitions:
                number, offset = answer.partition_index, answer.committed_offset
                self.world.history.fetch_commit(self._group, self._topic, number, offset, least[number])
                self._owned[number] = max(offset, 0)
        self.later(self._round)

    def _round(self) -> None:
        """Heartbeats and commits in turn; now and then it forgets who it was, as a process that is started anew."""
        self.rounds += 1
        if self.is_done:
            return
        if self.random.random() < 0.01:
            self._member_id = ""
            self._join()
        elif self._owned and self.random.random() < 0.5:
            self._commit()
        else:
            request = heartbeat.HeartbeatRequest(self._group, self._generation, self._member_id)
            self.call(request, 3, self._beaten)

    def _beaten(self, response: Any) -> None:
        if response is None:
            self.later(self.run)
        elif response.error_code:
            self._start_over(ErrorCode(response.error_code))
        else:
            self.later(self._round)

    def _commit(self) -> None:
        wanted = {number: offset + 1 for number, offset in self._owned.items()}
        partitions = [
            offset_commit.OffsetCommitRequestPartition(number, offset, committed_metadata="")
            for number, offset in wanted.items()
        ]
        topics = [offset_commit.OffsetCommitRequestTopic(self._topic, partitions=partitions)]
        request = offset_commit.OffsetCommitRequest(self._group, self._generation, self._member_id, topics=topics)
        self.call(request, 7, lambda response: self._told_commit(response, wanted))

    def _told_commit(self, response: Any, wanted: dict[int, int]) -> None:
        if response is None:
            self.later(self.run)  # it may be committed or not: what is committed is read again after the next join
            return
        codes = {ErrorCode(answer.error_code) for topic in response.topics for answer in topic.partitions}
        if codes == {ErrorCode.NONE}:
            for number, offset in wanted.items():
                self._owned[number] = offset
                self.world.history.commit(self._group, self._topic, number, offset)
            self.later(self._round)
        else:
            self._start_over(next(iter(sorted(codes - {ErrorCode.NONE}))))
