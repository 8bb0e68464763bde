"""ListOffsets 1–11: offsets by time, and at the ends of a log.

Special times: -1 latest, -2 earliest, -3 of the largest timestamp (version 7, KIP-734), -4 earliest on the local disk
(8, KIP-405), -5 latest in the tier (9, KIP-1005), -6 earliest not yet in the tier (11, KIP-1023).
"""

from __future__ import annotations

from collections import Counter

from barnabas.broker.context import Broker
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.runtime.partition import Partition
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
SINCE_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
STARTS = (EARLIEST, EARLIEST_LOCAL)
FIRST_WITH_OFFSET_NOT_AVAILABLE = 5
"""KIP-207."""
READ_COMMITTED = 1
CONSUMER, DEBUGGING_CONSUMER = -1, -2


def handle(broker: Broker, exchange: Request, request: ListOffsetsRequest) -> ListOffsetsResponse:
    response = ListOffsetsResponse()
    times = Counter((topic.name, wanted.partition_index) for topic in request.topics for wanted in topic.partitions)
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            named = times.pop((topic.name, wanted.partition_index), 0)
            if not named:
                continue  # answered already
            answer = ListOffsetsPartitionResponse(wanted.partition_index)
            try:
                if named > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST)
                _look_up(broker, exchange, request, topic.name, wanted, answer)
            except ApiError as problem:
                answer.error_code = problem.code
                answer.offset = answer.timestamp = -1
            answers.append(answer)
        response.topics.append(ListOffsetsTopicResponse(topic.name, answers))
    return response


def _look_up(
    broker: Broker,
    exchange: Request,
    request: ListOffsetsRequest,
    topic: str,
    wanted: ListOffsetsPartition,
    answer: ListOffsetsPartitionResponse,
) -> None:
    if wanted.timestamp < 0 and (
        wanted.timestamp < EARLIEST_PENDING_UPLOAD or exchange.version < SINCE_VERSION.get(wanted.timestamp, 0)
    ):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    partition = broker.partitions.get(topic, wanted.partition_index)
    if partition is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition.check_leader(wanted.current_leader_epoch)
    end = partition.visible_end(committed_only=request.isolation_level == READ_COMMITTED)
    if request.replica_id == DEBUGGING_CONSUMER or request.replica_id >= 0:
        end = partition.log_end_offset  # followers see all of it
    elif wanted.timestamp not in STARTS and partition.high_watermark < partition.leader_epoch_start_offset:
        # A new leader whose high watermark lags would answer with an offset that lies before one given earlier.
        old = exchange.version < FIRST_WITH_OFFSET_NOT_AVAILABLE
        raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE if old else ErrorCode.OFFSET_NOT_AVAILABLE)
    _answer(partition, wanted.timestamp, end, answer)


def _answer(partition: Partition, timestamp: int, end: int, answer: ListOffsetsPartitionResponse) -> None:
    if timestamp == LATEST:
        answer.offset = end
        answer.leader_epoch = partition.leader_epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD):
        if timestamp == EARLIEST_PENDING_UPLOAD:
            return  # nothing waits for a tier: there is none
        answer.offset = partition.log_start_offset if timestamp == EARLIEST else partition.local_log_start_offset
        answer.leader_epoch = partition.epoch_of(answer.offset)
    elif timestamp != LATEST_TIERED:
        latest = timestamp == MAX_TIMESTAMP
        found = partition.offset_of_max_timestamp() if latest else partition.offset_for_timestamp(timestamp)
        if found is not None and found.offset < end:
            answer.offset, answer.timestamp, answer.leader_epoch = found.offset, found.timestamp, found.leader_epoch
