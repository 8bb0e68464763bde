"""OffsetCommit 2–10: commits offsets of a group; topics by id from version 10 (KIP-516, KIP-848)."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.broker.grouping import ask, parted, together, told
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)


def handle(broker: Broker, exchange: Request, request: OffsetCommitRequest) -> OffsetCommitResponse | None:
    by_id = exchange.version >= 10
    refused: list[OffsetCommitResponseTopic] = []
    known: list[OffsetCommitRequestTopic] = []
    for topic in request.topics:
        image = broker.image.topics_by_id.get(topic.topic_id) if by_id else broker.image.topics.get(topic.name)
        if image is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused.append(_refused(topic, code))
            continue
        topic.name, topic.topic_id = image.name, image.topic_id
        there, missing = parted(topic.partitions, len(image.partitions))
        if missing:
            wanted = OffsetCommitRequestTopic(topic.name, topic.topic_id, missing)
            refused.append(_refused(wanted, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        if there:
            topic.partitions = there
            known.append(topic)
    if not known:
        return OffsetCommitResponse(topics=together((), refused))
    request.topics = known

    def failed(problem: ApiError) -> OffsetCommitResponse:
        code = told(problem, too_large=ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
        return OffsetCommitResponse(topics=together([_refused(topic, code) for topic in known], refused))

    def finished(response: OffsetCommitResponse) -> OffsetCommitResponse:
        response.topics = together(response.topics, refused)
        return response

    ask(broker, exchange, request.group_id, request, failed, finished)
    return None


def _refused(topic: OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic:
    answers = [OffsetCommitResponsePartition(wanted.partition_index, code) for wanted in topic.partitions]
    return OffsetCommitResponseTopic(topic.name, topic.topic_id, answers)
