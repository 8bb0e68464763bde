"""AlterPartition: a leader asks for another in-sync set (KIP-497, KIP-841, KIP-903).

Checked against the leader epoch, the partition epoch and the broker epochs of the proposed replicas, so that neither a
request that comes late nor a restarted replica is taken for what it was.
"""

from __future__ import annotations

from msgspec.structs import replace

from barnabas.core.metadata.image import MetadataImage, PartitionImage, TopicImage
from barnabas.core.metadata.partition_change import NO_LEADER_CHANGE, RECOVERED, RECOVERING
from barnabas.core.metadata.partition_rules import PartitionRules
from barnabas.core.metadata.policy import MetadataPolicy, Outcome
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.wire.api.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
    BrokerState,
)
from barnabas.wire.schema import Message
from barnabas.wire.stored.metadata_topics import PartitionChangeRecord


def alter_partition(image: MetadataImage, policy: MetadataPolicy, request: AlterPartitionRequest) -> Outcome:
    broker = image.brokers.get(request.broker_id)
    if broker is None or broker.broker_epoch != request.broker_epoch:
        return [], AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    decision = _Decision(PartitionRules(image, policy), request.broker_id)
    response = AlterPartitionResponse()
    for wanted in request.topics:
        answers = [decision.alter(wanted.topic_id, partition) for partition in wanted.partitions]
        response.topics.append(AlterPartitionResponseTopicData(topic_id=wanted.topic_id, partitions=answers))
    return decision.records, response


class _Decision:
    def __init__(self, rules: PartitionRules, leader: int) -> None:
        self.records: list[Message] = []
        self._rules = rules
        self._leader = leader
        self._altered: set[tuple[bytes, int]] = set()

    def alter(self, topic_id: bytes, wanted: AlterPartitionRequestPartitionData) -> AlterPartitionResponsePartitionData:
        number = wanted.partition_index
        try:
            topic, partition = self._find(topic_id, number)
            members = _members(wanted)
            _check_epochs(partition, self._leader, wanted)
            _check_members(partition, members, wanted.leader_recovery_state)
            self._check_eligible(members)
            return self._change(topic, partition, members, wanted)
        except ApiError as problem:
            return AlterPartitionResponsePartitionData(partition_index=number, error_code=problem.code)

    def _find(self, topic_id: bytes, number: int) -> tuple[TopicImage, PartitionImage]:
        if topic_id not in self._rules.image.topics_by_id:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        found = self._rules.find((topic_id, number))
        if found is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if (topic_id, number) in self._altered:
            raise ApiError(ErrorCode.INVALID_REQUEST, "The partition is named twice.")
        return found

    def _check_eligible(self, members: list[BrokerState]) -> None:
        """No fenced or stopping replica, nor one that has restarted since the leader heard of it (KIP-903)."""
        for member in members:
            broker = self._rules.broker(member.broker_id)
            is_same = broker is not None and member.broker_epoch in (-1, broker.broker_epoch)
            if broker is None or not broker.serves or not is_same:
                raise ApiError(ErrorCode.INELIGIBLE_REPLICA)

    def _change(
        self,
        topic: TopicImage,
        partition: PartitionImage,
        members: list[BrokerState],
        wanted: AlterPartitionRequestPartitionData,
    ) -> AlterPartitionResponsePartitionData:
        number = wanted.partition_index
        change = self._rules.change(topic, partition)
        change.in_sync = [member.broker_id for member in members]
        change.recovery_state = wanted.leader_recovery_state
        record = change.build(topic.topic_id, number)
        after = partition
        if record is not None:
            self.records.append(record)
            self._altered.add((topic.topic_id, number))
            after = _merged(partition, record)
            if after.leader != self._leader:
                # The change completed a reassignment that takes the leader away.
                raise ApiError(ErrorCode.NEW_LEADER_ELECTED)
        return AlterPartitionResponsePartitionData(
            partition_index=number,
            leader_id=after.leader,
            leader_epoch=after.leader_epoch,
            isr=list(after.in_sync_replicas),
            leader_recovery_state=after.leader_recovery_state,
            partition_epoch=after.partition_epoch,
        )


def _members(wanted: AlterPartitionRequestPartitionData) -> list[BrokerState]:
    """Version 2 names no broker epochs: -1 is not checked."""
    return list(wanted.new_isr_with_epochs) or [BrokerState(broker_id=node) for node in wanted.new_isr]


def _check_epochs(partition: PartitionImage, leader: int, wanted: AlterPartitionRequestPartitionData) -> None:
    if wanted.leader_epoch > partition.leader_epoch or wanted.partition_epoch > partition.partition_epoch:
        raise ApiError(ErrorCode.NOT_CONTROLLER)  # the leader knows of a newer controller's decision
    if wanted.leader_epoch < partition.leader_epoch:
        raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
    if leader != partition.leader:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    if wanted.partition_epoch < partition.partition_epoch:
        raise ApiError(ErrorCode.INVALID_UPDATE_VERSION)


def _check_members(partition: PartitionImage, members: list[BrokerState], recovery_state: int) -> None:
    nodes = [member.broker_id for member in members]
    is_known = set(nodes) <= set(partition.replicas) and len(set(nodes)) == len(nodes)
    if not is_known or partition.leader not in nodes or recovery_state not in (RECOVERED, RECOVERING):
        raise ApiError(ErrorCode.INVALID_REQUEST)
    if recovery_state == RECOVERING and (len(nodes) > 1 or partition.leader_recovery_state == RECOVERED):
        raise ApiError(ErrorCode.INVALID_REQUEST)


def _merged(partition: PartitionImage, record: PartitionChangeRecord) -> PartitionImage:
    """What the leader has to know of the partition after the record."""
    changes_leader = record.leader != NO_LEADER_CHANGE
    state = record.leader_recovery_state
    return replace(
        partition,
        in_sync_replicas=partition.in_sync_replicas if record.isr is None else tuple(record.isr),
        leader=record.leader if changes_leader else partition.leader,
        leader_epoch=partition.leader_epoch + changes_leader,
        partition_epoch=partition.partition_epoch + 1,
        leader_recovery_state=partition.leader_recovery_state if state == -1 else state,
    )
