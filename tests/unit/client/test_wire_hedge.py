"""Hedged reads: a follower is asked when the leader is slow."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from barnabas.client.wire import Client
from barnabas.client.wire.data import FetchLimits, fetch
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.wire.api.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.wire.api.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.wire.records import Record, encode_batch
from barnabas.wire.schema import Message
from tests.unit.client.fake_broker import FakeBroker, offered

FETCH, METADATA, VERSIONS = 1, 3, 18
PLACE = TopicPartition("t", 0)
LIMITS = FetchLimits(max_wait_ms=10, hedge_after_ms=20)
RECORDS = encode_batch([Record(0, 1_700_000_000_000, b"k", b"v")])


def fetched(code: int = 0, records: bytes = RECORDS) -> FetchResponse:
    data = PartitionData(0, error_code=code, high_watermark=1, records=records)
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])


class Cluster:
    """A bootstrap broker, a leader whose answer is held until ``release``, and a follower."""

    def __init__(self, leader: FetchResponse, follower: FetchResponse, in_sync: list[int]) -> None:
        self.release = threading.Event()
        self._leader = leader
        self._follower = follower
        self._in_sync = in_sync
        self.bootstrap = FakeBroker(lambda key, *_: offered((METADATA, 0, 9)) if key == VERSIONS else self._metadata())
        self.leader = FakeBroker(self._lead)
        self.follower = FakeBroker(lambda key, *_: offered((FETCH, 4, 12)) if key == VERSIONS else self._follower)

    def _lead(self, key: int, *_: object) -> Message:
        if key == VERSIONS:
            return offered((FETCH, 4, 12))
        assert self.release.wait(60)
        return self._leader

    def _metadata(self) -> MetadataResponse:
        ports = {1: self.leader.port, 2: self.follower.port}
        partition = MetadataResponsePartition(
            leader_id=1, replica_nodes=[1, 2], isr_nodes=self._in_sync, partition_index=0
        )
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node, "127.0.0.1", port) for node, port in ports.items()],
            topics=[MetadataResponseTopic(name="t", partitions=[partition])],
        )


@contextmanager
def running(cluster: Cluster) -> Iterator[Client]:
    with ExitStack() as stack:
        for broker in (cluster.bootstrap, cluster.leader, cluster.follower):
            stack.enter_context(broker)
        stack.callback(cluster.release.set)
        yield stack.enter_context(Client(cluster.bootstrap.address))


def test_a_follower_answers_for_a_slow_leader() -> None:
    cluster = Cluster(fetched(), fetched(), [1, 2])
    with running(cluster) as client:
        (found,) = fetch(client, {PLACE: 0}, LIMITS)
        assert bytes(found.records) == RECORDS
        assert not cluster.release.is_set(), "the leader has not answered"
        cluster.release.set()
        (found,) = fetch(client, {PLACE: 0}, LIMITS)
        assert bytes(found.records) == RECORDS, "the leader is asked again, on a new connection"


@pytest.mark.parametrize("answer", [fetched(ErrorCode.OFFSET_OUT_OF_RANGE), fetched(records=b"")])
def test_a_follower_that_is_behind_is_no_answer(answer: FetchResponse) -> None:
    cluster = Cluster(fetched(), answer, [1, 2])
    with running(cluster) as client:
        timer = threading.Timer(0.3, cluster.release.set)
        timer.start()
        (found,) = fetch(client, {PLACE: 0}, LIMITS)
        assert bytes(found.records) == RECORDS
        assert cluster.release.is_set(), "it is the leader's"
        timer.join()


@pytest.mark.parametrize(("in_sync", "limits"), [([1], LIMITS), ([1, 2], FetchLimits(max_wait_ms=10))])
def test_no_second_replica_is_asked(in_sync: list[int], limits: FetchLimits) -> None:
    cluster = Cluster(fetched(), fetched(), in_sync)
    with running(cluster) as client:
        timer = threading.Timer(0.3, cluster.release.set)
        timer.start()
        assert len(fetch(client, {PLACE: 0}, limits)) == 1
        assert cluster.follower.asked == []
        timer.join()
