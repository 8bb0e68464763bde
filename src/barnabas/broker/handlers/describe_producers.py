"""DescribeProducers 0: who writes to a partition idempotently, and since when (KIP-664)."""

from __future__ import annotations

from barnabas.broker.context import Broker, Request
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.wire.api.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def handle(broker: Broker, exchange: Request, request: DescribeProducersRequest) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(topic.name, [_describe(broker, topic.name, number) for number in topic.partition_indexes])
            for topic in request.topics
        ]
    )


def _describe(broker: Broker, topic: str, number: int) -> PartitionResponse:
    partition = broker.partitions.get(topic, number)
    if partition is None:
        return PartitionResponse(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        partition.check_leader()
    except ApiError as problem:
        return PartitionResponse(number, problem.code, problem.message)
    active = [
        ProducerState(
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=entry.transaction_first_offset,
        )
        for entry in partition.producers()
    ]
    return PartitionResponse(number, active_producers=active)
