"""DescribeProducers 0: the idempotent producers of a partition and their state (KIP-664)."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def handle(broker: Broker, exchange: Request, request: DescribeProducersRequest) -> DescribeProducersResponse:
    wanted: dict[str, dict[int, None]] = {}  # each once, however often it is named
    for topic in request.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return DescribeProducersResponse(
        topics=[TopicResponse(name, [_describe(broker, name, n) for n in numbers]) for name, numbers in wanted.items()]
    )


def _describe(broker: Broker, topic: str, number: int) -> PartitionResponse:
    try:
        partition = broker.partitions.get(topic, number)
        if partition is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
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
