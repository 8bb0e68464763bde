"""A run whose faults are written down instead of drawn: for histories that chance rarely meets.

    schedule = Schedule(nodes=3)
    leader, follower, _ = schedule.replicas
    schedule.isolate(leader)
    schedule.until(lambda: schedule.leader == follower, "another node leads")
    answer = schedule.produce(leader, "late")
    ...
    schedule.finish()

Time is virtual and runs only in ``wait``, ``until`` and ``finish``; ``until`` stops after the very event that makes its
condition true. The invariants of ``check`` hold after every event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from barnabas.core.metadata.image import PartitionImage
from barnabas.core.raft.machine import RaftMachine
from barnabas.model.errors import ErrorCode
from barnabas.node.broker_lifecycle import Phase
from barnabas.sim.client import Client
from barnabas.sim.cluster import SimNode
from barnabas.sim.history import Violation
from barnabas.sim.network import Hold
from barnabas.sim.world import World
from barnabas.wire.api import fetch, produce
from barnabas.wire.api.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from barnabas.wire.batch import iterate
from barnabas.wire.records import Record, decode_batch, encode_batch
from barnabas.wire.schema import Message

TOPIC = "orders"
WITHIN_MS = 20_000
SETTLE_MS = 15_000


class Answer(Client):
    """One request, and what came back."""

    def __init__(self, schedule: Schedule, name: str) -> None:
        super().__init__(schedule, name, schedule.random)
        self.response: Any = None
        self.has_ended = False
        """It is answered, or nobody will ever answer."""

    def run(self) -> None: ...

    def ask(self, request: Message, version: int, node_id: int) -> Answer:
        self.call(request, version, self._ended, node_id)
        return self

    def _ended(self, response: Any) -> None:
        self.response, self.has_ended = response, True
        self.is_done = True


class Produced(Answer):
    """A record sent with acks=all; the history learns of it when it is acknowledged."""

    value = b""

    @property
    def code(self) -> ErrorCode:
        if self.response is None:
            return ErrorCode.REQUEST_TIMED_OUT
        return ErrorCode(self.response.responses[0].partition_responses[0].error_code)

    @property
    def is_acknowledged(self) -> bool:
        return self.has_ended and self.code is ErrorCode.NONE

    def _ended(self, response: Any) -> None:
        super()._ended(response)
        if self.is_acknowledged:
            offset = response.responses[0].partition_responses[0].base_offset
            self.world.history.acknowledge(TOPIC, 0, offset, self.value)


class Schedule(World):
    def __init__(
        self, seed: int = 1, nodes: int = 3, *, is_durable: bool = True, settings: Mapping[str, str] | None = None
    ) -> None:
        """Starts the nodes, and creates a topic of one partition whose leader is not the active controller."""
        super().__init__(seed, nodes, is_durable=is_durable, settings=settings)
        self.pace = 1.0
        self.topics = []
        self._asked = 0
        self.explained(self.begin)
        self.topics = [(TOPIC, 1)]
        controller = self.controller
        others = [node_id for node_id in self.nodes if node_id != controller]
        self.replicas = [*others[:2], controller]
        """The partition's leader, a follower, and the follower that is the active controller."""
        self.create_topic(TOPIC, self.replicas)
        self.until(lambda: self.has_topics() and self.leader == self.replicas[0], "the topic has its leader")

    def creatable(self, name: str, count: int) -> CreatableTopic:
        topic = super().creatable(name, count)
        topic.num_partitions, topic.replication_factor = -1, -1
        topic.assignments = [CreatableReplicaAssignment(0, list(self.replicas))]
        return topic

    # Time

    def wait(self, duration_ms: float) -> None:
        end_ms = self.scheduler.now_ms + duration_ms
        self.explained(lambda: self._run_until(lambda: False, end_ms))

    def _run_until(self, condition: Callable[[], bool], end_ms: float) -> None:
        while not condition() and self.scheduler.run_one(end_ms):
            self.checker.look()

    def until(self, condition: Callable[[], bool], what: str, within_ms: float = WITHIN_MS) -> None:
        """Runs event by event; a condition that does not come true in time is a violation."""
        self.trace(f"until {what}")
        end_ms = self.scheduler.now_ms + within_ms
        self.explained(lambda: self._run_until(condition, end_ms))
        self.expect(condition(), f"{what}, within {within_ms:.0f} ms")

    # Faults

    def isolate(self, node_id: int, *others: int) -> None:
        """From these nodes, or from all; clients still reach it."""
        for other in others or [each for each in self.nodes if each != node_id]:
            self.links.cut(self.nodes[node_id].host, self.nodes[other].host)
            self.links.cut(self.nodes[other].host, self.nodes[node_id].host)

    def rejoin(self, node_id: int) -> None:
        for other in self.nodes.values():
            self.links.mend(self.nodes[node_id].host, other.host)
            self.links.mend(other.host, self.nodes[node_id].host)

    def kill(self, *node_ids: int, power: bool = False) -> None:
        """They stay down until ``start``."""
        for node_id in node_ids:
            self.nodes[node_id].kill(restart=False, power=power)

    def start(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.nodes[node_id].start()

    def pause(self, node_id: int, duration_ms: float) -> None:
        self.nodes[node_id].pause(duration_ms)

    def hold(
        self, api: type[Message], sender: int, receiver: int, *, listener: str | None = None, responses: bool = False
    ) -> Hold:
        """Requests of ``sender`` wait before ``receiver`` until ``links.release``; or responses, on their way back."""
        hosts = self.nodes[sender].host, self.nodes[receiver].host
        hold = Hold(api.api_key, *hosts, is_response=responses, listener=listener)
        self.links.hold(hold)
        return hold

    # Requests

    def ask(self, request: Message, version: int, node_id: int) -> Answer:
        self._asked += 1
        return Answer(self, f"s{self._asked}").ask(request, version, node_id)

    def create_topic(self, name: str, replicas: list[int], node_id: int | None = None) -> Answer:
        self.replicas = replicas
        request = CreateTopicsRequest(topics=[self.creatable(name, 1)], timeout_ms=3000)
        return self.ask(request, 7, self.controller if node_id is None else node_id)

    def produce(self, node_id: int, value: str) -> Produced:
        self._asked += 1
        answer = Produced(self, f"s{self._asked}")
        answer.value = value.encode()
        batch = encode_batch([Record(-1, 1_000_000, b"key", answer.value)])
        data = produce.TopicProduceData(TOPIC, partition_data=[produce.PartitionProduceData(0, batch)])
        answer.ask(produce.ProduceRequest(None, -1, 3000, [data]), 9, node_id)
        return answer

    def produce_all(self, node_id: int, *values: str) -> None:
        """Each is acknowledged before the next; they wait until the node knows that it leads."""
        self.until(lambda: self.replica(node_id).leader is not None, f"node {node_id} knows that it leads")
        for value in values:
            answer = self.produce(node_id, value)
            self.until(lambda answer=answer: answer.is_acknowledged, f"{value} is acknowledged")  # type: ignore[misc]

    def read(self, node_id: int) -> list[str] | None:
        """What a consumer reads from its beginning there; None where it is refused."""
        partition = fetch.FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = fetch.FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[fetch.FetchTopic(TOPIC, partitions=[partition])]
        )
        answer = self.ask(request, 11, node_id)
        self.until(lambda: answer.has_ended, "the fetch is answered")
        if answer.response is None or answer.response.responses[0].partitions[0].error_code:
            return None
        content = bytes(answer.response.responses[0].partitions[0].records or b"")
        return [
            (record.value or b"").decode()
            for position, _ in iterate(content)
            for record in decode_batch(content, position)
        ]

    # What is

    def up(self, node_id: int) -> SimNode:
        return self.nodes[node_id]

    def raft(self, node_id: int) -> RaftMachine:
        node = self.nodes[node_id].node
        assert node is not None, "it is down"
        return node.driver.machine

    def phase(self, node_id: int) -> Phase:
        node = self.nodes[node_id].node
        assert node is not None, "it is down"
        return node.phase

    def image(self, node_id: int | None = None) -> Any:
        """Committed metadata of a node, or the newest."""
        images = {each.node_id: each.node.metadata.committed for each in self.nodes.values() if each.node is not None}
        return images[node_id] if node_id is not None else max(images.values(), key=lambda image: image.next_offset)

    def log_end(self, node_id: int) -> int:
        """Of the metadata log."""
        node = self.nodes[node_id].node
        assert node is not None, "it is down"
        return node.driver.log_end_offset

    def replica(self, node_id: int) -> Any:
        node = self.nodes[node_id].node
        return None if node is None else node.broker.partitions.get(TOPIC, 0)

    @property
    def controller(self) -> int:
        """The active one of the highest epoch; -1 where there is none."""
        active = [
            (each.node.driver.raft_epoch, each.node_id)
            for each in self.nodes.values()
            if each.node is not None and each.node.controller is not None and each.node.controller.is_active
        ]
        return max(active, default=(-1, -1))[1]

    @property
    def state(self) -> PartitionImage:
        """Of the partition, as the nodes that are up know it."""
        topic = self.image().topics.get(TOPIC)
        return PartitionImage(replicas=(), in_sync_replicas=()) if topic is None else topic.partitions[0]

    @property
    def leader(self) -> int:
        return self.state.leader

    @property
    def in_sync(self) -> set[int]:
        return set(self.state.in_sync_replicas)

    # The end

    def expect(self, holds: object, what: str) -> None:
        if not holds:
            raise Violation(self.explain(f"expected: {what}"))

    def finish(self) -> None:
        """Everything heals, and has to come to rest with all that was acknowledged."""
        self.trace("the end begins")
        self.links.heal()
        for node in self.nodes.values():
            node.heal()
            if node.node is None:
                node.start()
        self.complete_voters()
        self.wait(SETTLE_MS)
        self.explained(self.check_end)
