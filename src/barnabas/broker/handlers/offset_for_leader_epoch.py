"""OffsetForLeaderEpoch 2–4: where a leader epoch ended, for readers that check for truncation (KIP-101, KIP-320)."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(broker: Broker, exchange: Request, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic.topic, [_end_of_epoch(broker, topic.topic, wanted) for wanted in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _end_of_epoch(broker: Broker, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = broker.partitions.get(topic, wanted.partition)
        if partition is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition.check_leader(wanted.current_leader_epoch)
    except ApiError as problem:
        return EpochEndOffset(problem.code, wanted.partition)
    leader_epoch, end_offset = partition.end_of_epoch(wanted.leader_epoch)
    return EpochEndOffset(0, wanted.partition, leader_epoch, end_offset)
