"""FetchSnapshot: a part of a snapshot of the metadata log."""

from typing import Annotated

from msgspec import field

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, In, Message, SentRecords, Struct, Tag, int16, int32, int64, uint16, uuid


class SnapshotId(Struct):
    end_offset: int64 = 0
    epoch: int32 = 0


class FetchSnapshotRequestPartitionSnapshot(Struct):
    partition: int32 = 0
    current_leader_epoch: int32 = 0
    snapshot_id: SnapshotId = field(default_factory=SnapshotId)
    position: int64 = 0
    replica_directory_id: Annotated[uuid, In("1+"), Tag(0)] = ZERO_UUID


class FetchSnapshotRequestTopicSnapshot(Struct):
    name: str = ""
    partitions: list[FetchSnapshotRequestPartitionSnapshot] = EMPTY


class FetchSnapshotRequest(Message):
    api_key = 59
    versions = "0-1"
    flexible = "0+"
    served_by = ("controller",)

    replica_id: int32 = -1
    max_bytes: int32 = (1 << 31) - 1
    topics: list[FetchSnapshotRequestTopicSnapshot] = EMPTY
    cluster_id: Annotated[str | None, Tag(0)] = None


class LeaderIdAndEpoch(Struct):
    leader_id: int32 = 0
    leader_epoch: int32 = 0


class FetchSnapshotResponsePartitionSnapshot(Struct):
    index: int32 = 0
    error_code: int16 = 0
    snapshot_id: SnapshotId = field(default_factory=SnapshotId)
    size: int64 = 0
    position: int64 = 0
    unaligned_records: SentRecords = b""
    current_leader: Annotated[LeaderIdAndEpoch, Tag(0)] = field(default_factory=LeaderIdAndEpoch)


class FetchSnapshotResponseTopicSnapshot(Struct):
    name: str = ""
    partitions: list[FetchSnapshotResponsePartitionSnapshot] = EMPTY


class NodeEndpoint(Struct):
    node_id: int32 = 0
    host: str = ""
    port: uint16 = 0


class FetchSnapshotResponse(Message):
    api_key = 59
    versions = "0-1"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    topics: list[FetchSnapshotResponseTopicSnapshot] = EMPTY
    node_endpoints: Annotated[list[NodeEndpoint], In("1+"), Tag(0)] = EMPTY
