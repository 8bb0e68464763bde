"""DeleteRecords 0–2: moves the start of a log forward (KIP-107), at most to the last stable offset.

-1 stands for that offset, which is the high watermark unless a transaction is open.
"""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import INTERNAL_TOPICS
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

ALL = -1


def handle(broker: Broker, exchange: Request, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse()
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            answer = DeleteRecordsPartitionResult(wanted.partition_index, -1)
            try:
                answer.low_watermark = _delete(broker, topic.name, wanted.partition_index, wanted.offset)
            except ApiError as problem:
                answer.error_code = problem.code
            answers.append(answer)
        response.topics.append(DeleteRecordsTopicResult(topic.name, answers))
    return response


def _delete(broker: Broker, topic: str, number: int, offset: int) -> int:
    partition = broker.partitions.get(topic, number)
    if partition is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic in INTERNAL_TOPICS:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition.check_leader()
    if not partition.allows_deletion:
        raise ApiError(ErrorCode.POLICY_VIOLATION)
    return partition.delete_records_before(partition.last_stable_offset if offset == ALL else offset)
