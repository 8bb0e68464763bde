"""Decisions about committed offsets."""

from __future__ import annotations

from barnabas.core.group.classic import ClassicGroup, State
from barnabas.core.group.offsets import CommittedOffset, commit_record, tombstone
from barnabas.core.group.turn import Turn
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.wire import codec
from barnabas.wire.api import offset_commit, offset_delete, offset_fetch
from barnabas.wire.schema import DecodeError
from barnabas.wire.stored.consumer_protocol import ConsumerProtocolSubscription


class OffsetsTurn(Turn):
    def commit(self, request: offset_commit.OffsetCommitRequest) -> None:
        code = ErrorCode.NONE
        try:
            self._check_commit(request)
        except ApiError as problem:
            code = problem.code
        response = offset_commit.OffsetCommitResponse()
        for topic in request.topics:
            answers = []
            for wanted in topic.partitions:
                answers.append(offset_commit.OffsetCommitResponsePartition(wanted.partition_index, code))
                if code:
                    continue
                if len((wanted.committed_metadata or "").encode()) > self._policy.offset_metadata_max_bytes:
                    answers[-1].error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                    continue
                committed = CommittedOffset(
                    wanted.committed_offset,
                    wanted.committed_leader_epoch,
                    wanted.committed_metadata or "",
                    self._request.wall_ms,
                    topic_id=topic.topic_id,
                )
                place = (topic.name, wanted.partition_index)
                self.records.append(commit_record(request.group_id, place, committed))
            response.topics.append(offset_commit.OffsetCommitResponseTopic(topic.name, topic.topic_id, answers))
        self._reply(response)

    def _check_commit(self, request: offset_commit.OffsetCommitRequest) -> None:
        """Members commit in their generation; without one only where nobody is a member."""
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        group = self._machine.groups.get(request.group_id)
        generation = request.generation_id_or_member_epoch
        if group is None or group.state is State.EMPTY:
            if generation >= 0 and (group is None or group.generation != generation or request.member_id):
                raise ApiError(ErrorCode.ILLEGAL_GENERATION if group is None else ErrorCode.UNKNOWN_MEMBER_ID)
            return
        if generation < 0 and not request.member_id:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = self._find(group, request.member_id, request.group_instance_id)
        self._check_generation(group, generation)
        if group.state is State.COMPLETING:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        member.deadline_ms = self._now_ms + member.session_timeout_ms

    def fetch(self, request: offset_fetch.OffsetFetchRequest) -> None:
        """One group each: the handler splits requests for several. Unknown groups and places are -1, not errors."""
        wanted = request.groups[0]
        known = self._machine.offsets.of(wanted.group_id)
        response = offset_fetch.OffsetFetchResponseGroup(wanted.group_id)
        if wanted.topics is None:
            listed: dict[str, list[int]] = {}
            for topic, partition in known:
                listed.setdefault(topic, []).append(partition)
            topics = [offset_fetch.OffsetFetchRequestTopics(name, partition_indexes=p) for name, p in listed.items()]
        else:
            topics = wanted.topics
        for place in topics:
            answers = [_fetched(number, known.get((place.name, number))) for number in place.partition_indexes]
            response.topics.append(offset_fetch.OffsetFetchResponseTopics(place.name, place.topic_id, answers))
        self._reply(offset_fetch.OffsetFetchResponse(groups=[response]))

    def delete_offsets(self, request: offset_delete.OffsetDeleteRequest) -> None:
        group = self._machine.groups.get(request.group_id)
        known = self._machine.offsets.of(request.group_id)
        if group is None and not known:
            self._reply(offset_delete.OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND))
            return
        if group is not None and group.members and group.protocol_type != "consumer":
            self._reply(offset_delete.OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP))
            return
        subscribed = subscribed_topics(group) if group is not None else frozenset()
        response = offset_delete.OffsetDeleteResponse()
        for topic in request.topics:
            answers = []
            for wanted in topic.partitions:
                answer = offset_delete.OffsetDeleteResponsePartition(wanted.partition_index)
                if topic.name in subscribed:
                    answer.error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                elif (topic.name, wanted.partition_index) in known:
                    self.records.append(tombstone(request.group_id, (topic.name, wanted.partition_index)))
                answers.append(answer)
            response.topics.append(offset_delete.OffsetDeleteResponseTopic(topic.name, answers))
        self._reply(response)


def _fetched(number: int, committed: CommittedOffset | None) -> offset_fetch.OffsetFetchResponsePartitions:
    if committed is None:
        return offset_fetch.OffsetFetchResponsePartitions(number, -1, -1, "")
    return offset_fetch.OffsetFetchResponsePartitions(
        number, committed.offset, committed.leader_epoch, committed.metadata
    )


def subscribed_topics(group: ClassicGroup) -> frozenset[str]:
    """Topics that members of a consumer group read, as far as their subscriptions can be read."""
    topics: set[str] = set()
    for member in group.members.values():
        subscription = member.protocols.get(group.protocol or "", b"")
        if len(subscription) < 2:
            continue
        version = min(int.from_bytes(subscription[:2], "big"), 3)
        try:
            topics.update(codec.decode(ConsumerProtocolSubscription, version, subscription, 2)[0].topics)
        except DecodeError:
            continue
    return frozenset(topics)
