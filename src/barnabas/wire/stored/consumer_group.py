"""Records of `__consumer_offsets`: consumer groups (KIP-848)."""

from typing import Annotated

from msgspec import field

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, Message, Struct, Tag, int8, int32, int64, uuid


class ConsumerGroupCurrentMemberAssignmentKey(Message):
    versions = "0-0"

    group_id: str = ""
    member_id: str = ""


class TopicPartitions(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[int32] = EMPTY
    assignment_epochs: Annotated[list[int32] | None, Tag(0)] = EMPTY


class ConsumerGroupCurrentMemberAssignmentValue(Message):
    versions = "0-0"
    flexible = "0+"

    member_epoch: int32 = 0
    previous_member_epoch: int32 = 0
    state: int8 = 0
    assigned_partitions: list[TopicPartitions] = EMPTY
    partitions_pending_revocation: list[TopicPartitions] = EMPTY


class ConsumerGroupMemberMetadataKey(Message):
    versions = "0-0"

    group_id: str = ""
    member_id: str = ""


class ClassicProtocol(Struct):
    name: str = ""
    metadata: bytes = b""


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int32 = 0
    supported_protocols: list[ClassicProtocol] = EMPTY


class ConsumerGroupMemberMetadataValue(Message):
    """A member. One that does not speak the classic protocol has None for ``classic_member_metadata``."""

    versions = "0-0"
    flexible = "0+"

    instance_id: str | None = ""
    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = EMPTY
    subscribed_topic_regex: str | None = ""
    rebalance_timeout_ms: int32 = -1
    server_assignor: str | None = ""
    classic_member_metadata: Annotated[ClassicMemberMetadata | None, Tag(0)] = field(
        default_factory=ClassicMemberMetadata
    )


class ConsumerGroupMetadataKey(Message):
    versions = "0-0"

    group_id: str = ""


class ConsumerGroupMetadataValue(Message):
    versions = "0-0"
    flexible = "0+"

    epoch: int32 = 0
    metadata_hash: Annotated[int64, Tag(0)] = 0


class ConsumerGroupPartitionMetadataKey(Message):
    versions = "0-0"

    group_id: str = ""


class PartitionMetadata(Struct):
    partition: int32 = 0
    racks: list[str] = EMPTY


class TopicMetadata(Struct):
    topic_id: uuid = ZERO_UUID
    topic_name: str = ""
    num_partitions: int32 = 0
    partition_metadata: list[PartitionMetadata] = EMPTY


class ConsumerGroupPartitionMetadataValue(Message):
    versions = "0-0"
    flexible = "0+"

    topics: list[TopicMetadata] = EMPTY


class ConsumerGroupRegularExpressionKey(Message):
    versions = "0-0"

    group_id: str = ""
    regular_expression: str = ""


class ConsumerGroupRegularExpressionValue(Message):
    versions = "0-0"
    flexible = "0+"

    topics: list[str] = EMPTY
    version: int64 = 0
    timestamp: int64 = 0


class ConsumerGroupTargetAssignmentMemberKey(Message):
    versions = "0-0"

    group_id: str = ""
    member_id: str = ""


class TopicPartition(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[int32] = EMPTY


class ConsumerGroupTargetAssignmentMemberValue(Message):
    versions = "0-0"
    flexible = "0+"

    topic_partitions: list[TopicPartition] = EMPTY


class ConsumerGroupTargetAssignmentMetadataKey(Message):
    versions = "0-0"

    group_id: str = ""


class ConsumerGroupTargetAssignmentMetadataValue(Message):
    versions = "0-0"
    flexible = "0+"

    assignment_epoch: int32 = 0
    assignment_timestamp: Annotated[int64, Tag(0)] = 0
