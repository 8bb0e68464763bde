"""AssignReplicasToDirs: a broker reports which of its directories holds which replica (KIP-858)."""

from __future__ import annotations

from msgspec.structs import replace

from barnabas.core.metadata.image import BrokerImage, MetadataImage, PartitionImage
from barnabas.core.metadata.partition_rules import PartitionRules
from barnabas.core.metadata.policy import MetadataPolicy, Outcome
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.wire.api.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)
from barnabas.wire.schema import Message
from barnabas.wire.stored.metadata_topics import PartitionChangeRecord


def assign_replicas(image: MetadataImage, policy: MetadataPolicy, request: AssignReplicasToDirsRequest) -> Outcome:
    broker = image.brokers.get(request.broker_id)
    if broker is None or broker.broker_epoch != request.broker_epoch:
        return [], AssignReplicasToDirsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    rules = PartitionRules(image, policy)
    records: dict[tuple[bytes, int], Message] = {}
    response = AssignReplicasToDirsResponse()
    for directory in request.directories:
        answers = AssignReplicasToDirsResponseDirectoryData(id=directory.id)
        response.directories.append(answers)
        for topic in directory.topics:
            answer = AssignReplicasToDirsResponseTopicData(topic_id=topic.topic_id)
            answers.topics.append(answer)
            for wanted in topic.partitions:
                key = (topic.topic_id, wanted.partition_index)
                outcome = AssignReplicasToDirsResponsePartitionData(wanted.partition_index)
                answer.partitions.append(outcome)
                try:
                    record = _assign(rules, broker, key, directory.id)
                    if record is not None:
                        records[key] = record  # of two places for one replica the last holds
                except ApiError as problem:
                    outcome.error_code = problem.code
    return list(records.values()), response


def _assign(
    rules: PartitionRules, broker: BrokerImage, key: tuple[bytes, int], directory: bytes
) -> PartitionChangeRecord | None:
    if key[0] not in rules.image.topics_by_id:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
    found = rules.find(key)
    if found is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    topic, partition = found
    if broker.node_id not in partition.replicas:
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    is_lost = not broker.has_online(partition.directory_of(broker.node_id))
    placed = partition if is_lost else _placed(partition, broker.node_id, directory)
    change = rules.change(topic, partition, placed=placed)
    change.directories = {broker.node_id: directory}
    if is_lost or not broker.has_online(directory):
        change.in_sync = [node for node in partition.in_sync_replicas if node != broker.node_id]
    if is_lost:
        # The replica begins anew elsewhere: what it had is gone, and it must not be elected for it.
        change.stopped_uncleanly = (broker.node_id,)
    return change.build(*key)


def _placed(partition: PartitionImage, node_id: int, directory: bytes) -> PartitionImage:
    places = [directory if node == node_id else partition.directory_of(node) for node in partition.replicas]
    return replace(partition, directories=tuple(places))
