"""Markers: one request per broker at a time, again until they are written, for as long as somebody wants them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.core.txn.marker import EndMarker
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import NO_LEADER, TopicPartition
from barnabas.runtime.transaction_markers import BACKOFF_MS, MarkerSender
from barnabas.wire.api.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.unit.runtime.group_kit import Clock

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class Brokers:
    """Who leads what, and the requests that were sent."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.leaders: dict[TopicPartition, int] = {A0: 1, A1: 2, B0: 1}
        self.asked: list[tuple[int, WriteTxnMarkersRequest, Callable[[Any], None]]] = []
        self.sender = MarkerSender(leader_of=self.leaders.get, to_broker=self.send, clock=self.clock)
        self.written: list[int] = []

    def send(self, node_id: int, lane: str, request: Any, timeout_ms: int, then: Callable[[Any], None]) -> None:
        self.asked.append((node_id, request, then))

    def end(self, producer_id: int, *partitions: TopicPartition) -> Any:
        marker = EndMarker(producer_id, 0, 5, committed=True)
        return self.sender.send(marker, partitions, lambda: self.written.append(producer_id))

    def answer(self, **codes: ErrorCode) -> tuple[int, list[int]]:
        """Answers the oldest request; returns its broker and whose markers it held. ``a0`` is a partition."""
        node_id, request, then = self.asked.pop(0)
        then(
            WriteTxnMarkersResponse(
                [
                    WritableTxnMarkerResult(
                        marker.producer_id,
                        [
                            WritableTxnMarkerTopicResult(
                                topic.name,
                                [
                                    WritableTxnMarkerPartitionResult(number, codes.get(f"{topic.name}{number}", 0))
                                    for number in topic.partition_indexes
                                ],
                            )
                            for topic in marker.topics
                        ],
                    )
                    for marker in request.markers
                ]
            )
        )
        return node_id, [marker.producer_id for marker in request.markers]


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


def test_a_transaction_is_written_when_every_broker_has_answered(brokers: Brokers) -> None:
    brokers.end(7, A0, A1, B0)
    assert brokers.answer() == (1, [7])
    assert not brokers.written
    assert brokers.answer() == (2, [7])
    assert brokers.written == [7]


def test_a_transaction_without_partitions_needs_nobody(brokers: Brokers) -> None:
    brokers.end(7)
    assert brokers.written == [7]
    assert not brokers.asked


def test_markers_gather_while_a_request_is_in_flight(brokers: Brokers) -> None:
    for producer_id in (7, 8, 9):
        brokers.end(producer_id, A0)
    assert brokers.answer() == (1, [7])
    assert brokers.answer() == (1, [8, 9])
    assert brokers.written == [7, 8, 9]


def test_a_broker_that_is_away_holds_up_nobody_else(brokers: Brokers) -> None:
    brokers.end(7, A0, A1)
    brokers.end(8, A1)
    _, _, then = brokers.asked.pop(0)
    then(ApiError(ErrorCode.NETWORK_EXCEPTION))
    assert brokers.answer() == (2, [7])
    assert brokers.answer() == (2, [8])
    assert brokers.written == [8]
    assert not brokers.asked, "not at once again"
    brokers.clock.wait(BACKOFF_MS)
    assert brokers.answer() == (1, [7])
    assert brokers.written == [8, 7]


def test_a_partition_is_found_at_its_new_leader(brokers: Brokers) -> None:
    brokers.end(7, A0)
    brokers.answer(a0=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    brokers.leaders[A0] = NO_LEADER
    brokers.clock.wait(5 * BACKOFF_MS)
    assert not brokers.asked
    brokers.leaders[A0] = 2
    brokers.clock.wait(BACKOFF_MS)
    assert brokers.answer() == (2, [7])
    assert brokers.written == [7]


def test_a_deleted_partition_needs_no_marker(brokers: Brokers) -> None:
    brokers.end(7, A0, B0)
    del brokers.leaders[A0]
    brokers.answer(a0=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert not brokers.written
    brokers.clock.wait(BACKOFF_MS)
    assert brokers.written == [7]


def test_a_partition_that_has_seen_a_later_epoch_needs_none(brokers: Brokers) -> None:
    brokers.end(7, A0)
    brokers.answer(a0=ErrorCode.INVALID_PRODUCER_EPOCH)
    assert brokers.written == [7]


def test_a_fenced_coordinator_gives_up(brokers: Brokers) -> None:
    brokers.end(7, A0, A1)
    brokers.answer(a0=ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    brokers.answer()
    brokers.clock.wait(10 * BACKOFF_MS)
    assert not brokers.written
    assert not brokers.asked


def test_cancelled_markers_are_not_sent_again(brokers: Brokers) -> None:
    job = brokers.end(7, A0)
    brokers.end(8, A0)
    job.cancel()
    brokers.answer(a0=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert brokers.answer() == (1, [8])
    brokers.clock.wait(BACKOFF_MS)
    assert not brokers.asked
    assert brokers.written == [8]
