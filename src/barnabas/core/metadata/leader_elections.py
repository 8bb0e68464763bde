"""Elections that are asked for: ElectLeaders (KIP-183, KIP-460), and the regular return to preferred leaders."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from barnabas.core.metadata.elections import MAX_CHANGES_PER_STEP
from barnabas.core.metadata.image import MetadataImage, TopicImage
from barnabas.core.metadata.index import PartitionIndex, PartitionSet
from barnabas.core.metadata.partition_change import NO_LEADER_CHANGE, Election
from barnabas.core.metadata.partition_rules import PartitionRules
from barnabas.core.metadata.policy import MetadataPolicy, Outcome
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import NO_LEADER
from barnabas.wire.api.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from barnabas.wire.schema import Message
from barnabas.wire.stored.metadata_topics import PartitionChangeRecord

TIMER = "leader balance"
MAX_ELECTIONS_PER_REQUEST = 10_000
ELECTION_TYPES = {0: Election.PREFERRED, 1: Election.UNCLEAN}


def elect_leaders(image: MetadataImage, policy: MetadataPolicy, request: ElectLeadersRequest) -> Outcome:
    election = ELECTION_TYPES.get(request.election_type)
    if election is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    rules = PartitionRules(image, policy)
    records: dict[tuple[str, int], Message] = {}
    results = []
    for name, numbers in _wanted(image, request):
        result = ReplicaElectionResult(topic=name)
        for number in numbers:
            answer = PartitionResult(partition_id=number, error_message=None)
            try:
                records[name, number] = _elect(rules, image.topics.get(name), number, election)
            except ApiError as problem:
                answer.error_code, answer.error_message = problem.code, problem.message
            if request.topic_partitions is not None or answer.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                result.partition_result.append(answer)
        results.append(result)
    if len(records) > MAX_ELECTIONS_PER_REQUEST:
        raise ApiError(ErrorCode.POLICY_VIOLATION, f"{len(records)} elections in one request.")
    return list(records.values()), ElectLeadersResponse(replica_election_results=results)


def _wanted(image: MetadataImage, request: ElectLeadersRequest) -> Iterable[tuple[str, Iterable[int]]]:
    if request.topic_partitions is None:
        return [(name, range(len(topic.partitions))) for name, topic in image.topics.items()]
    return [(each.topic, dict.fromkeys(each.partitions)) for each in request.topic_partitions]


def _elect(rules: PartitionRules, topic: TopicImage | None, number: int, election: Election) -> PartitionChangeRecord:
    if topic is None or not 0 <= number < len(topic.partitions):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition = topic.partitions[number]
    if election is Election.PREFERRED and partition.leader == partition.replicas[0]:
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED)
    if election is Election.UNCLEAN and partition.leader != NO_LEADER:
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED)
    record = rules.examine((topic.topic_id, number), election=election)
    if record is None or record.leader in (NO_LEADER_CHANGE, NO_LEADER):
        code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        raise ApiError(code if election is Election.PREFERRED else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    return record


class LeaderBalance:
    """Gives partitions back to their preferred leaders from time to time (auto.leader.rebalance.enable)."""

    def __init__(self, policy: MetadataPolicy) -> None:
        self._policy = policy
        self._is_active = False
        self._is_armed = False
        self._queue = PartitionSet()

    def activate(self) -> None:
        self._is_active, self._is_armed = self._policy.auto_leader_rebalance_enabled, False
        self._queue = PartitionSet()

    def step(self, image: MetadataImage, index: PartitionIndex) -> list[Message]:
        """As many elections as one decision takes; the rest follows at once."""
        self._is_armed = False
        rules = PartitionRules(image, self._policy)
        if not self._queue:
            self._queue = _electable(rules, index)
        records: list[Message] = []
        for key in list(islice(self._queue, MAX_CHANGES_PER_STEP)):
            self._queue.discard(key)
            record = rules.examine(key, election=Election.PREFERRED)
            if record is not None:
                records.append(record)
        return records

    def timer(self, now_ms: int) -> list[tuple[str, int]]:
        if not self._is_active or self._is_armed:
            return []
        self._is_armed = True
        return [(TIMER, now_ms if self._queue else now_ms + self._policy.leader_imbalance_check_interval_ms)]


def _electable(rules: PartitionRules, index: PartitionIndex) -> PartitionSet:
    """Partitions that another than the preferred replica leads, although that one could."""
    found = PartitionSet()
    for key in index.not_preferred:
        at = rules.find(key)
        if at is not None:
            _, partition = at
            preferred = partition.replicas[0]
            if preferred in partition.in_sync_replicas and rules.may_lead(partition, preferred):
                found.add(key)
    return found
