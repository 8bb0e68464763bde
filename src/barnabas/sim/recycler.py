"""A client that creates a topic, fills it, reads it back, deletes it and begins again with the same name.

Every topic id is a topic of its own: what was acknowledged under one id is read under that id, whole and in order, and
nothing of a former topic of the same name.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from barnabas.model.errors import ErrorCode
from barnabas.sim.client import PASSING, Client, World
from barnabas.sim.history import Violation
from barnabas.wire.api import create_topics, delete_topics, fetch, metadata, produce
from barnabas.wire.batch import iterate
from barnabas.wire.records import Record, decode_batch, encode_batch

TOPIC = "recycled"
GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


class Recycler(Client):
    def __init__(self, world: World, name: str, rng: random.Random) -> None:
        super().__init__(world, name, rng)
        self.rounds = 0
        self._topic_id = b""
        self._leader = -1
        self._gone: set[bytes] = set()
        self._sent: list[bytes] = []
        self._acknowledged: dict[int, bytes] = {}

    # Creating

    def run(self) -> None:
        if self.is_done:
            return
        forever = create_topics.CreatableTopicConfig("retention.ms", "-1")
        topic = create_topics.CreatableTopic(TOPIC, 1, min(3, len(self.world.nodes)), configs=[forever])
        self.call(create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=3000), 7, self._created)

    def _created(self, response: Any) -> None:
        code = ErrorCode.REQUEST_TIMED_OUT if response is None else ErrorCode(response.topics[0].error_code)
        if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            self._sent, self._acknowledged, self._topic_id = [], {}, b""
            self._find(self._produce)
        elif code in PASSING or code is ErrorCode.INVALID_REPLICATION_FACTOR:
            self.later(self.run)  # too few brokers serve at the moment
        else:
            raise Violation(f"{self.name} is answered {code.name} to CreateTopics")

    def _find(self, then: Callable[[], None]) -> None:
        """Asks for the topic's id and leader; a topic of another id is a new one."""
        wanted = metadata.MetadataRequestTopic(name=TOPIC)
        request = metadata.MetadataRequest(topics=[wanted], allow_auto_topic_creation=False)
        self.call(request, 12, lambda response: self._found(response, then))

    def _found(self, response: Any, then: Callable[[], None]) -> None:
        topic = None if response is None else response.topics[0]
        if topic is None or topic.error_code or topic.partitions[0].leader_id < 0:
            self.later(lambda: self._find(then))
        elif topic.topic_id in self._gone:
            self.later(lambda: self._find(then))  # the node has not heard of the deletion
        elif self._topic_id and topic.topic_id != self._topic_id:
            raise Violation(f"{TOPIC} {self._topic_id.hex()} is gone, and nobody has deleted it")
        else:
            self._topic_id, self._leader = bytes(topic.topic_id), topic.partitions[0].leader_id
            self.later(then)

    # Filling

    def _produce(self) -> None:
        if len(self._acknowledged) >= self.random.randrange(1, 12):
            self._fetch()
            return
        value = f"{self.name}/{self._topic_id.hex()}/{len(self._sent)}".encode()
        self._sent.append(value)
        batch = encode_batch([Record(-1, 1_000_000, b"key", value)])
        data = produce.TopicProduceData(
            topic_id=self._topic_id, partition_data=[produce.PartitionProduceData(0, batch)]
        )
        request = produce.ProduceRequest(None, -1, 2000, [data])
        self.call(request, 13, lambda response: self._produced(response, value), self._leader)

    def _produced(self, response: Any, value: bytes) -> None:
        answer = None if response is None else response.responses[0].partition_responses[0]
        code = ErrorCode.REQUEST_TIMED_OUT if answer is None else ErrorCode(answer.error_code)
        if answer is not None and code is ErrorCode.NONE:
            self._acknowledged[answer.base_offset] = value
            self.later(self._produce)
        else:
            self._recover(code, self._produce)

    def _recover(self, code: ErrorCode, then: Callable[[], None]) -> None:
        if code not in PASSING and code not in GONE:
            raise Violation(f"{self.name} is answered {code.name}")
        self._find(then)

    # Reading back

    def _fetch(self) -> None:
        partition = fetch.FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
        topics = [fetch.FetchTopic(topic_id=self._topic_id, partitions=[partition])]
        request = fetch.FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, topics=topics)
        self.call(request, 13, self._fetched, self._leader)

    def _fetched(self, response: Any) -> None:
        data = None if response is None or response.error_code else response.responses[0].partitions[0]
        code = ErrorCode.REQUEST_TIMED_OUT if data is None else ErrorCode(data.error_code)
        if data is None or code is not ErrorCode.NONE:
            self._recover(code, self._fetch)
            return
        content = bytes(data.records or b"")
        found = {
            record.offset: bytes(record.value or b"")
            for position, _ in iterate(content)
            for record in decode_batch(content, position)
        }
        self._check(found, data.high_watermark)
        if data.high_watermark <= max(self._acknowledged):
            self.later(self._fetch)  # a new leader whose high watermark has not caught up yet
        else:
            self._delete()

    def _check(self, found: dict[int, bytes], high_watermark: int) -> None:
        foreign = [value for value in found.values() if value not in self._sent]
        if foreign:
            raise Violation(f"{TOPIC} holds {foreign[0]!r}, which was never sent to this topic")
        for offset, value in self._acknowledged.items():
            if offset < high_watermark and found.get(offset) != value:
                raise Violation(f"{TOPIC} lost {value!r} at offset {offset}: there is {found.get(offset)!r}")

    # Deleting

    def _delete(self) -> None:
        state = delete_topics.DeleteTopicState(topic_id=self._topic_id)
        self.call(delete_topics.DeleteTopicsRequest(topics=[state], timeout_ms=3000), 6, self._deleted)

    def _deleted(self, response: Any) -> None:
        code = ErrorCode.REQUEST_TIMED_OUT if response is None else ErrorCode(response.responses[0].error_code)
        if code is ErrorCode.NONE or code in GONE:
            self.rounds += 1
            self._gone.add(self._topic_id)
            self.later(self.run)
        elif code in PASSING:
            self.later(self._delete)
        else:
            raise Violation(f"{self.name} is answered {code.name} to DeleteTopics")
