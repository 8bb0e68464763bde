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
    metadata,
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
SESSION_MS = 3000
JOIN_TIMEOUT_MS = SESSION_MS + 2000
"""Longer than a rebalance may take, as real clients have it: one that gives up earlier begins another."""

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
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_CONTROLLER,
    }
)
"""What a client tries again after."""


class World(Protocol):
    scheduler: Scheduler
    history: History
    nodes: dict[int, SimNode]
    pace: float
    """How many times longer than usual clients rest between two requests."""


Then = Callable[[Any], None]


class _Call:
    """The request that a client waits for."""

    __slots__ = ("correlation_id", "node_id", "response", "then", "timer", "version")

    def __init__(self, response: type[Message], version: int, correlation_id: int, node_id: int, then: Then) -> None:
        self.response = response
        self.version = version
        self.correlation_id = correlation_id
        self.node_id = node_id
        self.then = then
        self.timer: Event | None = None


class Client(ABC):
    """One request at a time, over a connection to each node that it has asked."""

    def __init__(self, world: World, name: str, rng: random.Random) -> None:
        self.world = world
        self.name = name
        self.random = rng
        self.is_done = False
        self._connections: dict[int, Connection] = {}
        self._call: _Call | None = None
        self._correlation_id = 0
        self._bootstrap = rng.randrange(0, len(world.nodes))

    def start(self) -> None:
        self.later(self.run)

    @abstractmethod
    def run(self) -> None:
        """What the client does first."""

    def later(self, callback: Callable[[], None], span: tuple[float, float] = PAUSE_MS) -> None:
        self.world.scheduler.after(self.random.uniform(*span) * self.world.pace, callback)

    def call(
        self,
        request: Message,
        version: int,
        then: Then,
        node_id: int | None = None,
        timeout_ms: float = REQUEST_TIMEOUT_MS,
    ) -> None:
        """``then`` gets the response, or None: nobody knows then whether it was carried out. Any node by default."""
        if node_id is None:
            nodes = sorted(self.world.nodes)
            node_id = nodes[self._bootstrap % len(nodes)]
        connection = self._connect(node_id)
        if connection is None:
            self._bootstrap += 1
            self.later(lambda: then(None), RECONNECT_MS)
            return
        self._correlation_id += 1
        response = catalogue.api_classes(request.api_key)[1]
        call = self._call = _Call(response, version, self._correlation_id, node_id, then)
        call.timer = self.world.scheduler.after(timeout_ms, lambda: self._on_timeout(call))
        chunks = header.frame_request(request, version, self._correlation_id, self.name)
        connection.send(b"".join(chunks))  # type: ignore[arg-type]

    def _connect(self, node_id: int) -> Connection | None:
        connection = self._connections.get(node_id)
        if connection is not None and connection.is_open:
            return connection
        node = self.world.nodes.get(node_id)
        if node is None:
            return None
        made: list[Connection] = []
        new = node.connect(
            self.name, lambda data: self._on_frame(made[0], data), lambda: self._on_end(node_id, made[0])
        )
        if new is not None:
            made.append(new)
            self._connections[node_id] = new
        return new

    def _on_frame(self, connection: Connection, data: bytes) -> None:
        """What a former connection still says is not heard."""
        call = self._call
        if call is None or self._connections.get(call.node_id) is not connection:
            return
        header_version = header.response_header_version(call.response, call.version)
        found, body = header.decode_response_header(data, 4, len(data), header_version)
        if found != call.correlation_id:
            raise Violation(f"{self.name} got the reply to {found} for {call.correlation_id}")
        self._finish(codec.reader(call.response, call.version)(data, body, len(data))[0])

    def _on_timeout(self, call: _Call) -> None:
        if call is self._call:
            connection = self._connections.pop(call.node_id, None)
            if connection is not None:
                connection.close()
            self._bootstrap += 1
            self._finish(None)

    def _on_end(self, node_id: int, connection: Connection) -> None:
        if self._connections.get(node_id) is connection:
            del self._connections[node_id]
            if self._call is not None and self._call.node_id == node_id:
                self._bootstrap += 1
                self._finish(None)

    def _finish(self, outcome: Any) -> None:
        call, self._call = self._call, None
        if call is not None:
            if call.timer is not None:
                call.timer.cancel()
            call.then(outcome)


Place = tuple[str, int]


class RoutingClient(Client):
    """Asks for the leaders of its partitions, and again when one of them turns out to be another."""

    def __init__(self, world: World, name: str, rng: random.Random, topics: list[tuple[str, int]]) -> None:
        super().__init__(world, name, rng)
        self._topics = topics
        self.leaders: dict[Place, int] = {}
        self.leader_epochs: dict[Place, int] = {}
        """The highest that it has heard of: what a node says that knows only earlier ones is not believed (KIP-320)."""

    def refresh(self, then: Callable[[], None]) -> None:
        names = [metadata.MetadataRequestTopic(name=name) for name, _ in self._topics]
        request = metadata.MetadataRequest(topics=names, allow_auto_topic_creation=False)
        self.call(request, 9, lambda response: self._refreshed(response, then))

    def _refreshed(self, response: Any, then: Callable[[], None]) -> None:
        for topic in response.topics if response is not None else ():
            for partition in topic.partitions:
                self._learn((topic.name, partition.partition_index), partition.leader_id, partition.leader_epoch)
        self.later(then)

    def _learn(self, place: Place, leader: int, leader_epoch: int) -> None:
        if leader_epoch < self.leader_epochs.get(place, -1):
            return
        self.leader_epochs[place] = leader_epoch
        if leader >= 0:
            self.leaders[place] = leader
        else:
            self.leaders.pop(place, None)


class Producer(RoutingClient):
    """Idempotent, acks=all; a batch whose outcome is not known is sent again until it is."""

    def __init__(self, world: World, name: str, rng: random.Random, topics: list[tuple[str, int]]) -> None:
        super().__init__(world, name, rng, topics)
        self._partitions = [(topic, number) for topic, count in topics for number in range(count)]
        self._producer_id = -1
        self._sequences: dict[Place, int] = {}
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
        self.world.history.grant(response.producer_id, response.producer_epoch, self.name)
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
        leader = self.leaders.get(place)
        if leader is None:
            self.refresh(lambda: self._send(place, sequence, values))
            return
        # Timestamps of long ago: what the broker remembers must not depend on them.
        records = [Record(-1, 1_000_000, b"key", value) for value in values]
        batch = encode_batch(records, producer_id=self._producer_id, producer_epoch=0, base_sequence=sequence)
        data = produce.TopicProduceData(place[0], partition_data=[produce.PartitionProduceData(place[1], batch)])
        request = produce.ProduceRequest(None, -1, 2000, [data])
        self.call(request, 9, lambda response: self._sent(response, place, sequence, values), leader)

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
        self.leaders.pop(place, None)
        self.later(lambda: self._send(place, sequence, values))


class Consumer(RoutingClient):
    """Reads every partition from its beginning; offsets must follow each other without a gap."""

    def __init__(self, world: World, name: str, rng: random.Random, topics: list[tuple[str, int]]) -> None:
        super().__init__(world, name, rng, topics)
        self.positions = {(topic, number): 0 for topic, count in topics for number in range(count)}

    def run(self) -> None:
        if self.is_done:
            return
        leaders = sorted(set(self.leaders.values()))
        if len(self.leaders) < len(self.positions) or self.random.random() < 0.05:
            self.refresh(self._fetch)
        else:
            self._fetch(self.random.choice(leaders))

    def _fetch(self, leader: int | None = None) -> None:
        if leader is None:
            if not self.leaders:
                self.later(self.run)
                return
            leader = self.random.choice(sorted(set(self.leaders.values())))
        by_topic: dict[str, list[fetch.FetchPartition]] = {}
        for (topic, number), offset in self.positions.items():
            if self.leaders.get((topic, number)) == leader:
                leader_epoch = self.leader_epochs[topic, number]
                wanted = fetch.FetchPartition(number, leader_epoch, offset, partition_max_bytes=1 << 20)
                by_topic.setdefault(topic, []).append(wanted)
        topics = [fetch.FetchTopic(topic, partitions=partitions) for topic, partitions in by_topic.items()]
        request = fetch.FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, topics=topics)
        self.call(request, 11, self._fetched, leader)

    def _fetched(self, response: Any) -> None:
        if response is None:
            self.leaders.clear()
        for topic in response.responses if response is not None else ():
            for data in topic.partitions:
                code = ErrorCode(data.error_code)
                if code is ErrorCode.NONE:
                    self._take((topic.topic, data.partition_index), bytes(data.records or b""))
                elif code in PASSING:
                    self.leaders.pop((topic.topic, data.partition_index), None)
                else:
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
        self._coordinator: int | None = None
        self.rounds = 0

    def run(self) -> None:
        request = find_coordinator.FindCoordinatorRequest(key=self._group, key_type=0)
        self.call(request, 3, self._found)

    def _found(self, response: Any) -> None:
        if response is None or response.error_code:
            self.later(self.run)
        else:
            self._coordinator = response.node_id
            self._join()

    def _join(self) -> None:
        if self.is_done:
            return
        protocol = join_group.JoinGroupRequestProtocol("range", b"")
        request = join_group.JoinGroupRequest(
            self._group, SESSION_MS, SESSION_MS, self._member_id, None, "consumer", [protocol]
        )
        self.call(request, 5, self._joined, self._coordinator, JOIN_TIMEOUT_MS)

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
        self.call(request, 3, self._synced, self._coordinator)

    def _synced(self, response: Any) -> None:
        if response is None:
            self.later(self.run)
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
        self.call(request, 5, lambda response: self._told_offsets(response, least), self._coordinator)

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
            self.call(request, 3, self._beaten, self._coordinator)

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
        self.call(request, 7, lambda response: self._told_commit(response, wanted), self._coordinator)

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
