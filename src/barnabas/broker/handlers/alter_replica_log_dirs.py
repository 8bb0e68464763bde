"""AlterReplicaLogDirs 1–2: moves replicas to other data folders of this broker (KIP-113)."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def handle(broker: Broker, exchange: Request, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            results = topics.setdefault(topic.name, [])
            for number in topic.partitions:
                code = _move(broker, TopicPartition(topic.name, number), directory.path)
                results.append(AlterReplicaLogDirPartitionResult(partition_index=number, error_code=code))
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(topic_name=name, partitions=found) for name, found in topics.items()]
    )


def _move(broker: Broker, name: TopicPartition, path: str) -> ErrorCode:
    """Begun, or refused; the move itself goes on after the answer."""
    try:
        broker.moves().move(name, path)
    except ApiError as problem:
        return problem.code
    return ErrorCode.NONE
