"""What a follower asks its leader for, and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition, Uuid
from barnabas.runtime.partition import Partition
from barnabas.runtime.replica_fetcher import FetchSettings, ReplicaFetcher
from barnabas.runtime.replication_throttle import ReplicationThrottle
from barnabas.sim.clock import NodeClock, Scheduler
from barnabas.sim.disk import SimDisk
from barnabas.wire.api.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from tests.unit.storage.kit import open_log, small

TOPIC = Uuid(b"1" * 16)
SESSION = 17
SETTINGS = FetchSettings()


class Place:
    """A follower of some partitions of one leader, and what it has sent."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.clock = NodeClock(self.scheduler)
        self.sent: list[tuple[FetchRequest, Callable[[Any], None]]] = []
        self.fetcher = ReplicaFetcher(
            leader_id=1,
            node_id=2,
            broker_epoch=lambda: 5,
            send=lambda request, _timeout_ms, then: self.sent.append((request, then)),
            clock=self.clock,
            settings=SETTINGS,
            throttle=ReplicationThrottle(2, self.clock, lambda _: True),
            report=lambda *_, **__: None,
        )

    def add(self, *numbers: int) -> None:
        for number in numbers:
            disk = SimDisk()
            log = open_log(disk, small())
            log.partition = TopicPartition("orders", number)
            partition = Partition(log=log, topic_id=TOPIC, node_id=2, disk=disk, clock=self.clock)
            partition.follow(1, 0, (1, 2))
            self.fetcher.add(partition)

    def run(self, ms: int = 0) -> None:
        self.scheduler.run_until(self.scheduler.now_ms + ms)

    def answer(self, *partitions: PartitionData, session_id: int = SESSION) -> None:
        _, then = self.sent[-1]
        then(FetchResponse(session_id=session_id, responses=[FetchableTopicResponse("", TOPIC, list(partitions))]))

    @property
    def last(self) -> FetchRequest:
        return self.sent[-1][0]

    @property
    def asked(self) -> list[int]:
        return [each.partition for topic in self.last.topics for each in topic.partitions]


def test_what_is_added_in_one_go_is_asked_for_in_one_request() -> None:
    place = Place()
    place.add(0, 1, 2)
    place.run()
    assert len(place.sent) == 1
    assert place.asked == [0, 1, 2]


def test_the_request_that_begins_a_session_does_not_wait_at_the_leader() -> None:
    """Partitions that are added meanwhile could not be asked for."""
    place = Place()
    place.add(0)
    place.run()
    assert place.last.max_wait_ms == 0
    place.add(1)
    place.run()
    assert len(place.sent) == 1
    place.answer()
    assert place.asked == [1]
    assert place.last.max_wait_ms == SETTINGS.max_wait_ms
    place.add(2)
    place.run()
    assert place.asked == [2], "in the session a second request follows"


def test_a_leader_without_room_for_sessions_may_hold_requests_back() -> None:
    place = Place()
    place.add(0)
    place.run()
    place.answer(session_id=0)
    assert place.last.max_wait_ms == SETTINGS.max_wait_ms
    assert place.asked == [0]
    place.answer(session_id=0)
    assert place.last.max_wait_ms == SETTINGS.max_wait_ms


def test_a_partition_that_the_leader_does_not_lead_yet_is_asked_for_again_soon() -> None:
    place = Place()
    place.add(0, 1)
    place.run()
    place.answer(PartitionData(0, ErrorCode.UNKNOWN_LEADER_EPOCH))
    count = len(place.sent)
    place.run(SETTINGS.retry_ms)
    assert len(place.sent) == count + 1
    assert place.asked == [0]
