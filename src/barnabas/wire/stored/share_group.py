"""Records of `__consumer_offsets`: share groups (KIP-932)."""

from typing import Annotated

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, Message, Struct, Tag, int8, int32, int64, uuid


class ShareGroupCurrentMemberAssignmentKey(Message):
    versions = "0-0"

    group_id: str = ""
    member_id: str = ""


class TopicPartitions(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[int32] = EMPTY


class ShareGroupCurrentMemberAssignmentValue(Message):
    versions = "0-0"
    flexible = "0+"

    member_epoch: int32 = 0
    previous_member_epoch: int32 = 0
    state: int8 = 0
    assigned_partitions: list[TopicPartitions] = EMPTY


class ShareGroupMemberMetadataKey(Message):
    versions = "0-0"

    group_id: str = ""
    member_id: str = ""


class ShareGroupMemberMetadataValue(Message):
    versions = "0-0"
    flexible = "0+"

    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = EMPTY


class ShareGroupMetadataKey(Message):
    versions = "0-0"

    group_id: str = ""


class ShareGroupMetadataValue(Message):
    versions = "0-0"
    flexible = "0+"

    epoch: int32 = 0
    metadata_hash: int64 = 0


class ShareGroupStatePartitionMetadataKey(Message):
    versions = "0-0"

    group_id: str = ""


class TopicPartitionsInfo(Struct):
    topic_id: uuid = ZERO_UUID
    topic_name: str = ""
    partitions: list[int32] = EMPTY


class TopicInfo(Struct):
    topic_id: uuid = ZERO_UUID
    topic_name: str = ""


class ShareGroupStatePartitionMetadataValue(Message):
    versions = "0-0"
    flexible = "0+"

    initializing_topics: list[TopicPartitionsInfo] = EMPTY
    initialized_topics: list[TopicPartitionsInfo] = EMPTY
    deleting_topics: list[TopicInfo] = EMPTY


class ShareGroupTargetAssignmentMemberKey(Message):
    versions = "0-0"

    group_id: str = ""
    member_id: str = ""


class TopicPartition(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[int32] = EMPTY


class ShareGroupTargetAssignmentMemberValue(Message):
    versions = "0-0"
    flexible = "0+"

    topic_partitions: list[TopicPartition] = EMPTY


class ShareGroupTargetAssignmentMetadataKey(Message):
    versions = "0-0"

    group_id: str = ""


class ShareGroupTargetAssignmentMetadataValue(Message):
    versions = "0-0"
    flexible = "0+"

    assignment_epoch: int32 = 0
    assignment_timestamp: Annotated[int64, Tag(0)] = 0
