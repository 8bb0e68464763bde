"""DescribeTopicPartitions 0: topics page by page, with their eligible leader replicas (KIP-966)."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.broker.context import Broker
from barnabas.core.metadata.image import MetadataImage, TopicImage
from barnabas.core.metadata.topics import is_legal
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import INTERNAL_TOPICS, NO_LEADER
from barnabas.runtime.authorized import ALL_TOPIC_OPERATIONS
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


def handle(
    broker: Broker, exchange: Request, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    image = broker.image
    limit = max(1, min(request.response_partition_limit, broker.settings.max_request_partition_size_limit))
    response = DescribeTopicPartitionsResponse()
    for name, first in _page(image, request):
        topic = image.topics.get(name)
        if topic is None:
            response.topics.append(_missing(name))
            continue
        if limit <= 0:
            response.next_cursor = Cursor(name, first)
            break
        last = min(len(topic.partitions), first + limit)
        response.topics.append(_topic(image, topic, first, last))
        limit -= last - first
        if last < len(topic.partitions):
            response.next_cursor = Cursor(name, last)
            break
    return response


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(code, name, topic_authorized_operations=ALL_TOPIC_OPERATIONS)


def _page(image: MetadataImage, request: DescribeTopicPartitionsRequest) -> Iterator[tuple[str, int]]:
    """(topic, first partition) from the cursor on, in order of names."""
    names = sorted({topic.name for topic in request.topics} or image.topics)
    start, first = ("", 0) if request.cursor is None else (request.cursor.topic_name, request.cursor.partition_index)
    for name in names:
        if name >= start:
            yield name, max(0, first) if name == start else 0


def _topic(image: MetadataImage, topic: TopicImage, first: int, last: int) -> DescribeTopicPartitionsResponseTopic:
    partitions = []
    for number in range(first, last):
        state = topic.partitions[number]
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE if state.leader == NO_LEADER else 0,
                partition_index=number,
                leader_id=state.leader,
                leader_epoch=state.leader_epoch,
                replica_nodes=list(state.replicas),
                isr_nodes=list(state.in_sync_replicas),
                eligible_leader_replicas=list(state.eligible_leader_replicas),
                last_known_elr=list(state.last_known_eligible),
                offline_replicas=[n for n in state.replicas if n not in image.brokers or image.brokers[n].fenced],
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=ALL_TOPIC_OPERATIONS,
    )
