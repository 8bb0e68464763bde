"""DeleteRecords 0–2: moves the start of a log forward (KIP-107), at most to the last stable offset.

-1 stands for that offset, which is the high watermark unless a transaction is open. An offset that lies behind an open
transaction waits for its end, as long as the request allows: a commit is answered before its markers are written.
"""

from __future__ import annotations

from functools import partial

from barnabas.broker.context import Broker
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import INTERNAL_TOPICS
from barnabas.runtime.partition import Partition
from barnabas.runtime.pipeline import Request
from barnabas.runtime.purgatory import DelayedDeletion
from barnabas.wire.api.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

ALL = -1


def handle(broker: Broker, exchange: Request, request: DeleteRecordsRequest) -> DeleteRecordsResponse | None:
    response = DeleteRecordsResponse()
    waits: list[tuple[Partition, int, DeleteRecordsPartitionResult]] = []
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            answer = DeleteRecordsPartitionResult(wanted.partition_index, -1)
            answers.append(answer)
            try:
                partition = _find(broker, topic.name, wanted.partition_index)
            except ApiError as problem:
                answer.error_code = problem.code
                continue
            offset = partition.last_stable_offset if wanted.offset == ALL else wanted.offset
            if partition.last_stable_offset < offset <= partition.high_watermark:
                waits.append((partition, offset, answer))
            else:
                _delete(partition, offset, answer)
        response.topics.append(DeleteRecordsTopicResult(topic.name, answers))
    if not waits:
        return response
    _park(broker, exchange, request, response, waits)
    return None


def _find(broker: Broker, topic: str, number: int) -> Partition:
    partition = broker.partitions.get(topic, number)
    if partition is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic in INTERNAL_TOPICS:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition.check_leader()
    if not partition.allows_deletion:
        raise ApiError(ErrorCode.POLICY_VIOLATION)
    return partition


def _delete(partition: Partition, offset: int, answer: DeleteRecordsPartitionResult) -> None:
    try:
        partition.check_leader()
        answer.low_watermark = partition.delete_records_before(offset)
    except ApiError as problem:
        answer.error_code = problem.code


def _park(
    broker: Broker,
    exchange: Request,
    request: DeleteRecordsRequest,
    response: DeleteRecordsResponse,
    waits: list[tuple[Partition, int, DeleteRecordsPartitionResult]],
) -> None:
    waiting = len(waits)

    def stable(slot: int) -> None:
        nonlocal waiting
        _delete(*waits[slot])
        waiting -= 1
        if not waiting:
            exchange.reply(response)

    deadline_ms = broker.clock.monotonic_ms() + max(0, request.timeout_ms)
    for slot, (partition, offset, _) in enumerate(waits):
        DelayedDeletion(partition, offset, deadline_ms, broker.clock, partial(stable, slot))
