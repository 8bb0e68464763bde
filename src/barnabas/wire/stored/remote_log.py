"""Records of `__remote_log_metadata` (KIP-405)."""

from typing import Annotated

from msgspec import field

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, Message, Struct, Tag, int8, int32, int64, uuid


class TopicIdPartitionEntry(Struct):
    name: str = ""
    id: uuid = ZERO_UUID
    partition: int32 = 0


class RemoteLogSegmentIdEntry(Struct):
    topic_id_partition: TopicIdPartitionEntry = field(default_factory=TopicIdPartitionEntry)
    id: uuid = ZERO_UUID


class SegmentLeaderEpochEntry(Struct):
    leader_epoch: int32 = 0
    offset: int64 = 0


class RemoteLogSegmentMetadataRecord(Message):
    versions = "0-0"
    flexible = "0+"

    remote_log_segment_id: RemoteLogSegmentIdEntry = field(default_factory=RemoteLogSegmentIdEntry)
    start_offset: int64 = 0
    end_offset: int64 = 0
    broker_id: int32 = 0
    max_timestamp_ms: int64 = 0
    event_timestamp_ms: int64 = 0
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = EMPTY
    segment_size_in_bytes: int32 = 0
    custom_metadata: bytes | None = None
    remote_log_segment_state: int8 = 0
    txn_index_empty: Annotated[bool, Tag(0)] = False


class RemoteLogSegmentMetadataSnapshotRecord(Message):
    versions = "0-0"
    flexible = "0+"

    segment_id: uuid = ZERO_UUID
    start_offset: int64 = 0
    end_offset: int64 = 0
    broker_id: int32 = 0
    max_timestamp_ms: int64 = 0
    event_timestamp_ms: int64 = 0
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = EMPTY
    segment_size_in_bytes: int32 = 0
    custom_metadata: bytes | None = None
    remote_log_segment_state: int8 = 0
    txn_index_empty: Annotated[bool, Tag(0)] = False


class RemoteLogSegmentMetadataUpdateRecord(Message):
    versions = "0-0"
    flexible = "0+"

    remote_log_segment_id: RemoteLogSegmentIdEntry = field(default_factory=RemoteLogSegmentIdEntry)
    broker_id: int32 = 0
    event_timestamp_ms: int64 = 0
    custom_metadata: bytes | None = None
    remote_log_segment_state: int8 = 0


class RemotePartitionDeleteMetadataRecord(Message):
    versions = "0-0"
    flexible = "0+"

    topic_id_partition: TopicIdPartitionEntry = field(default_factory=TopicIdPartitionEntry)
    broker_id: int32 = 0
    event_timestamp_ms: int64 = 0
    remote_partition_delete_state: int8 = 0
