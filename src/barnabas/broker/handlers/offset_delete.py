"""OffsetDelete 0: takes committed offsets away, of topics that the group does not read (KIP-496)."""

from __future__ import annotations

from barnabas.broker.context import Broker, Request
from barnabas.broker.grouping import ask, told
from barnabas.model.errors import ErrorCode
from barnabas.wire.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(broker: Broker, exchange: Request, request: OffsetDeleteRequest) -> None:
    refused = [_unknown(topic) for topic in request.topics if topic.name not in broker.image.topics]
    request.topics = [topic for topic in request.topics if topic.name in broker.image.topics]

    def finished(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
        if not response.error_code:
            response.topics += refused
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
