"""WriteTxnMarkers 1–2: a transaction coordinator tells leaders how transactions ended (KIP-98, KIP-890).

A marker in ``__consumer_offsets`` goes through the group coordinator: with it, pending offsets count or are dropped.
"""

from __future__ import annotations

from typing import Any

from barnabas.broker.context import Broker
from barnabas.core.txn.marker import EndMarker
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import OFFSETS_TOPIC
from barnabas.runtime.pipeline import Request
from barnabas.runtime.purgatory import DelayedProduce
from barnabas.wire.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

TIMEOUT_MS = 3_000
"""Markers that are not committed by then are sent again: the others of the request should not wait for them."""
_NOT_LEADER = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)


def handle(broker: Broker, exchange: Request, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse | None:
    results: list[WritableTxnMarkerPartitionResult] = []
    places: list[tuple[EndMarker, str, int]] = []
    response = WriteTxnMarkersResponse(markers=[_answers(marker, results, places) for marker in request.markers])
    if not results:
        return response

    def finish(outcomes: dict[int, ErrorCode]) -> None:
        for slot, outcome in outcomes.items():
            results[slot].error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER if outcome in _NOT_LEADER else outcome
        exchange.reply(response)

    deadline_ms = broker.clock.monotonic_ms() + TIMEOUT_MS
    delayed = DelayedProduce(len(results), deadline_ms, broker.clock, finish)
    for slot, (marker, topic, number) in enumerate(places):
        _write(broker, marker, topic, number, delayed.outcome_of(slot))
    return None


def _answers(
    marker: WritableTxnMarker,
    results: list[WritableTxnMarkerPartitionResult],
    places: list[tuple[EndMarker, str, int]],
) -> WritableTxnMarkerResult:
    """The shape of the answer; its parts are also put into ``results``, and what to write where into ``places``."""
    written = EndMarker(
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        marker.transaction_result,
        marker.transaction_version,
    )
    topics = []
    for topic in marker.topics:
        answers = [WritableTxnMarkerPartitionResult(number) for number in topic.partition_indexes]
        results += answers
        places += [(written, topic.name, number) for number in topic.partition_indexes]
        topics.append(WritableTxnMarkerTopicResult(topic.name, answers))
    return WritableTxnMarkerResult(marker.producer_id, topics)


def _write(broker: Broker, marker: EndMarker, topic: str, number: int, outcome: Any) -> None:
    def recorded(answer: Any) -> None:
        outcome(answer.code if isinstance(answer, ApiError) else ErrorCode.NONE)

    try:
        if topic == OFFSETS_TOPIC:
            broker.groups.shard(number).submit(marker, recorded)
            return
        partition = broker.partitions.get(topic, number)
        if partition is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition.check_leader()
        if not partition.has_enough_in_sync:
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
        appended = partition.append_end_marker(marker, broker.clock.now_ms())
        partition.when_acknowledged(appended.last_offset, outcome)
    except ApiError as problem:
        outcome(problem.code)
