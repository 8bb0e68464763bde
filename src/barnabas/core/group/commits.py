"""Decisions about committed offsets."""

from __future__ import annotations

from barnabas.core.group.classic import State
from barnabas.core.group.offsets import CommittedOffset, commit_record, tombstone
from barnabas.core.group.subscriptions import CONSUMER, Subscription
from barnabas.core.group.turn import Turn
from barnabas.core.txn.marker import Producer
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import ZERO_UUID
from barnabas.model.settings import LONG_MAX
from barnabas.wire.api import offset_commit, offset_delete, offset_fetch, txn_offset_commit

NOT_FOUND_FROM_VERSION = 9
"""OffsetCommit: clients of earlier versions expect ILLEGAL_GENERATION for a group that is not there."""


class OffsetsTurn(Turn):
    def commit(self, request: offset_commit.OffsetCommitRequest) -> None:
        code = ErrorCode.NONE
        try:
            self._check_commit(request)
        except ApiError as problem:
            code = problem.code
        response = offset_commit.OffsetCommitResponse()
        for topic in request.topics:
            answers = [
                offset_commit.OffsetCommitResponsePartition(
                    wanted.partition_index,
                    code
                    or self._commit(request.group_id, topic.name, wanted, topic.topic_id, request.retention_time_ms),
                )
                for wanted in topic.partitions
            ]
            response.topics.append(offset_commit.OffsetCommitResponseTopic(topic.name, topic.topic_id, answers))
        self._reply(response)

    def _commit(
        self,
        group_id: str,
        topic: str,
        wanted: offset_commit.OffsetCommitRequestPartition | txn_offset_commit.TxnOffsetCommitRequestPartition,
        topic_id: bytes = ZERO_UUID,
        retention_ms: int = -1,
    ) -> ErrorCode:
        metadata = wanted.committed_metadata or ""
        if len(metadata) > self._policy.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        wall_ms = self._request.wall_ms
        committed = CommittedOffset(
            wanted.committed_offset,
            wanted.committed_leader_epoch,
            metadata,
            wall_ms,
            -1 if retention_ms < 0 else min(wall_ms + retention_ms, LONG_MAX),
            topic_id,
        )
        self.records.append(commit_record(group_id, (topic, wanted.partition_index), committed))
        return ErrorCode.NONE

    def commit_in_transaction(self, request: txn_offset_commit.TxnOffsetCommitRequest) -> None:
        """The offsets are pending until the marker of the transaction comes (KIP-98, KIP-447)."""
        code = ErrorCode.NONE
        try:
            self._check_transactional_commit(request)
        except ApiError as problem:
            code = problem.code
        producer = Producer(request.producer_id, request.producer_epoch, self._request.guard)
        response = txn_offset_commit.TxnOffsetCommitResponse()
        for topic in request.topics:
            answers = [
                txn_offset_commit.TxnOffsetCommitResponsePartition(
                    wanted.partition_index, code or self._commit(request.group_id, topic.name, wanted)
                )
                for wanted in topic.partitions
            ]
            response.topics.append(txn_offset_commit.TxnOffsetCommitResponseTopic(topic.name, answers))
        self.records = [record._replace(producer=producer) for record in self.records]
        self._reply(response)

    def _check_transactional_commit(self, request: txn_offset_commit.TxnOffsetCommitRequest) -> None:
        """Those who name neither generation nor member are not checked: they came before KIP-447."""
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        group = self._machine.groups.get(request.group_id)
        if request.generation_id < 0 and not request.member_id and request.group_instance_id is None:
            return
        if group is None:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        member = self._find(group, request.member_id, request.group_instance_id)
        self._check_generation(group, request.generation_id)
        member.deadline_ms = self._now_ms + member.session_timeout_ms

    def _check_commit(self, request: offset_commit.OffsetCommitRequest) -> None:
        """Members commit in their generation; commits without a generation need a group without members.

        The empty group id is accepted here, for old clients.
        """
        group = self._machine.groups.get(request.group_id)
        generation = request.generation_id_or_member_epoch
        if generation < 0 and (group is None or group.state is State.EMPTY):
            return
        if group is None:
            if self._machine.offsets.of(request.group_id):
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            late = self._request.version >= NOT_FOUND_FROM_VERSION
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND if late else ErrorCode.ILLEGAL_GENERATION)
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
            for name, partition in known:
                listed.setdefault(name, []).append(partition)
            topics = [offset_fetch.OffsetFetchRequestTopics(name, partition_indexes=p) for name, p in listed.items()]
        else:
            topics = wanted.topics
        for topic in topics:
            answers = [
                self._fetched(wanted.group_id, topic, number, request.require_stable)
                for number in topic.partition_indexes
            ]
            response.topics.append(offset_fetch.OffsetFetchResponseTopics(topic.name, topic.topic_id, answers))
        self._reply(offset_fetch.OffsetFetchResponse(groups=[response]))

    def _fetched(
        self, group_id: str, topic: offset_fetch.OffsetFetchRequestTopics, number: int, require_stable: bool
    ) -> offset_fetch.OffsetFetchResponsePartitions:
        offsets, place = self._machine.offsets, (topic.name, number)
        if require_stable and offsets.is_unstable(group_id, place):
            code = ErrorCode.UNSTABLE_OFFSET_COMMIT
            return offset_fetch.OffsetFetchResponsePartitions(number, -1, -1, "", code)
        committed = offsets.of(group_id).get(place)
        if committed is None or _is_other_topic(committed.topic_id, topic.topic_id):
            return offset_fetch.OffsetFetchResponsePartitions(number, -1, -1, "")
        return offset_fetch.OffsetFetchResponsePartitions(
            number, committed.offset, committed.leader_epoch, committed.metadata
        )

    def delete_offsets(self, request: offset_delete.OffsetDeleteRequest) -> None:
        try:
            self._delete_offsets(request)
        except ApiError as problem:
            self._reply(offset_delete.OffsetDeleteResponse(error_code=problem.code))

    def _delete_offsets(self, request: offset_delete.OffsetDeleteRequest) -> None:
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        group = self._machine.groups.get(request.group_id)
        known = self._machine.offsets.of(request.group_id)
        if group is None and not known:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
        if group is not None and group.members and group.protocol_type != CONSUMER:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)
        subscription = Subscription(group)
        response = offset_delete.OffsetDeleteResponse()
        for topic in request.topics:
            is_read = topic.name in subscription
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_read else ErrorCode.NONE
            numbers = [wanted.partition_index for wanted in topic.partitions]
            if not is_read:
                places = [(topic.name, number) for number in dict.fromkeys(numbers)]
                self.records += [tombstone(request.group_id, place) for place in places if place in known]
            answers = [offset_delete.OffsetDeleteResponsePartition(number, code) for number in numbers]
            response.topics.append(offset_delete.OffsetDeleteResponseTopic(topic.name, answers))
        self._reply(response)


def _is_other_topic(committed: bytes, asked: bytes) -> bool:
    """A topic that was deleted and created again is another one."""
    return ZERO_UUID not in (committed, asked) and committed != asked
