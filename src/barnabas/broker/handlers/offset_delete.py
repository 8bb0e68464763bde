"""OffsetDelete 0: deletes committed offsets of topics to which the group is not subscribed (KIP-496)."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.broker.grouping import ask, parted, together, told
from barnabas.model.errors import ErrorCode
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(broker: Broker, exchange: Request, request: OffsetDeleteRequest) -> None:
    refused: list[OffsetDeleteResponseTopic] = []
    known: list[OffsetDeleteRequestTopic] = []
    for topic in request.topics:
        image = broker.image.topics.get(topic.name)
        there, missing = parted(topic.partitions, 0 if image is None else len(image.partitions))
        if missing:
            refused.append(_unknown(OffsetDeleteRequestTopic(topic.name, missing)))
        if there:
            topic.partitions = there
            known.append(topic)
    request.topics = known

    def finished(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
        if not response.error_code:
            response.topics = together(response.topics, refused)
        return response

    ask(
        broker,
        exchange,
        request.group_id,
        request,
        lambda problem: OffsetDeleteResponse(error_code=told(problem)),
        finished,
    )


def _unknown(topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answers = [OffsetDeleteResponsePartition(wanted.partition_index, code) for wanted in topic.partitions]
    return OffsetDeleteResponseTopic(topic.name, answers)
