"""Reassignment: partitions move to other brokers (KIP-455, KIP-860).

    begin     the new replicas are added to the old ones; ``adding`` and ``removing`` say what will be
    progress  the new replicas catch up, and the leader adds them to the in-sync set (AlterPartition)
    end       with all of them in sync the old ones leave (``partition_change``)
    cancel    the added ones leave at once

What only changes the order of replicas, or takes some away, ends at once. A reassignment of a partition that is being
reassigned replaces the former one; to cancel it goes back to the replicas before both.
"""

from __future__ import annotations

from barnabas.core.metadata.image import MetadataImage, PartitionImage, TopicImage
from barnabas.core.metadata.index import PartitionIndex
from barnabas.core.metadata.partition_change import RECOVERING
from barnabas.core.metadata.partition_rules import PartitionRules
from barnabas.core.metadata.placement import check_assignment
from barnabas.core.metadata.policy import MetadataPolicy, Outcome
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.wire.api import alter_partition_reassignments as alter_api
from barnabas.wire.api import list_partition_reassignments as list_api
from barnabas.wire.schema import Message
from barnabas.wire.stored.metadata_topics import PartitionChangeRecord


def alter(
    image: MetadataImage, policy: MetadataPolicy, request: alter_api.AlterPartitionReassignmentsRequest
) -> Outcome:
    rules = PartitionRules(image, policy)
    allow_change = request.allow_replication_factor_change
    records: dict[tuple[str, int], Message] = {}
    response = alter_api.AlterPartitionReassignmentsResponse(
        error_message=None, allow_replication_factor_change=allow_change
    )
    for topic in request.topics:
        answers = alter_api.ReassignableTopicResponse(name=topic.name)
        for wanted in topic.partitions:
            answer = alter_api.ReassignablePartitionResponse(wanted.partition_index, error_message=None)
            answers.partitions.append(answer)
            key = (topic.name, wanted.partition_index)
            try:
                if key in records:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "The partition is named twice.")
                record = _alter(rules, topic.name, wanted, allow_change=allow_change)
                if record is not None:
                    records[key] = record
            except ApiError as problem:
                answer.error_code, answer.error_message = problem.code, problem.message
        response.responses.append(answers)
    return list(records.values()), response


def _alter(
    rules: PartitionRules, name: str, wanted: alter_api.ReassignablePartition, *, allow_change: bool
) -> PartitionChangeRecord | None:
    topic, number = rules.image.topics.get(name), wanted.partition_index
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    if not 0 <= number < len(topic.partitions):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{number}.")
    if wanted.replicas is None:
        return _cancel(rules, topic, number)
    if not allow_change:
        _check_width(topic.partitions[number], wanted.replicas)
    check_assignment(rules.image, wanted.replicas, len(wanted.replicas))
    return _begin(rules, topic, number, wanted.replicas)


def _check_width(partition: PartitionImage, target: list[int]) -> None:
    current = len(set(partition.replicas) - set(partition.removing_replicas))
    if current != len(target):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {current} to {len(target)}",
        )


def _begin(rules: PartitionRules, topic: TopicImage, number: int, target: list[int]) -> PartitionChangeRecord | None:
    partition = topic.partitions[number]
    removing = sorted(set(partition.replicas) - set(target))
    original = set(partition.replicas) - set(partition.adding_replicas)
    change = rules.change(topic, partition)
    change.replicas = [*target, *removing]
    change.removing = removing
    change.adding = sorted(set(change.replicas) - original)
    change.directories = {node: rules.default_directory(node) for node in target if node not in partition.replicas}
    return change.build(topic.topic_id, number)


def _cancel(rules: PartitionRules, topic: TopicImage, number: int) -> PartitionChangeRecord | None:
    partition = topic.partitions[number]
    if not partition.is_reassigning:
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    change = rules.change(topic, partition)
    change.adding, change.removing = [], []
    change.replicas = [node for node in partition.replicas if node not in partition.adding_replicas]
    change.in_sync = [node for node in partition.in_sync_replicas if node in change.replicas]
    if not _may_lead_cleanly(partition, change.replicas):
        # Only replicas that were added have all records.
        if not rules.is_unclean_allowed(topic.name):
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}:{number} because it would require an unclean "
                "leader election.",
            )
        serving = [node for node in change.replicas if rules.may_lead(partition, node)]
        change.in_sync = [*serving, *change.replicas][:1]
        change.recovery_state = RECOVERING
    return change.build(topic.topic_id, number)


def _may_lead_cleanly(partition: PartitionImage, replicas: list[int]) -> bool:
    """Whether one of the replicas has what was acknowledged, as far as is known."""
    members = {*partition.in_sync_replicas, *partition.eligible_leader_replicas} or partition.last_known_eligible
    return not set(members).isdisjoint(replicas)


def list_ongoing(
    image: MetadataImage, index: PartitionIndex, request: list_api.ListPartitionReassignmentsRequest
) -> Outcome:
    if request.topics is None:
        wanted = [(image.topics_by_id[topic_id], number) for topic_id, number in index.reassigning]
    else:
        named = ((image.topics.get(each.name), each.partition_indexes) for each in request.topics)
        wanted = [(topic, number) for topic, numbers in named if topic is not None for number in numbers]
    found: dict[str, dict[int, list_api.OngoingPartitionReassignment]] = {}
    for topic, number in wanted:
        if 0 <= number < len(topic.partitions) and topic.partitions[number].is_reassigning:
            found.setdefault(topic.name, {})[number] = _ongoing(number, topic.partitions[number])
    topics = [
        list_api.OngoingTopicReassignment(name, [partitions[number] for number in sorted(partitions)])
        for name, partitions in found.items()
    ]
    return [], list_api.ListPartitionReassignmentsResponse(error_message=None, topics=topics)


def _ongoing(number: int, partition: PartitionImage) -> list_api.OngoingPartitionReassignment:
    return list_api.OngoingPartitionReassignment(
        partition_index=number,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding_replicas),
        removing_replicas=list(partition.removing_replicas),
    )
