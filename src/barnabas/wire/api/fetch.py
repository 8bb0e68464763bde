"""Fetch: read record batches, as a consumer or as a replica."""

from typing import Annotated

from msgspec import field

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, In, Message, SentRecords, Struct, Tag, int8, int16, int32, int64, uuid


class FetchPartition(Struct):
    partition: int32 = 0
    current_leader_epoch: Annotated[int32, In("9+")] = -1
    fetch_offset: int64 = 0
    last_fetched_epoch: Annotated[int32, In("12+")] = -1
    log_start_offset: Annotated[int64, In("5+")] = -1
    partition_max_bytes: int32 = 0
    replica_directory_id: Annotated[uuid, In("17+"), Tag(0)] = ZERO_UUID
    high_watermark: Annotated[int64, In("18+"), Tag(1)] = (1 << 63) - 1


class FetchTopic(Struct):
    topic: Annotated[str, In("4-12")] = ""
    topic_id: Annotated[uuid, In("13+")] = ZERO_UUID
    partitions: list[FetchPartition] = EMPTY


class ForgottenTopic(Struct):
    topic: Annotated[str, In("7-12")] = ""
    topic_id: Annotated[uuid, In("13+")] = ZERO_UUID
    partitions: list[int32] = EMPTY


class ReplicaState(Struct):
    replica_id: int32 = -1
    replica_epoch: int64 = -1


class FetchRequest(Message):
    api_key = 1
    versions = "4-18"
    flexible = "12+"
    served_by = ("broker", "controller")

    replica_id: Annotated[int32, In("4-14")] = -1
    max_wait_ms: int32 = 0
    min_bytes: int32 = 0
    max_bytes: int32 = (1 << 31) - 1
    isolation_level: int8 = 0
    session_id: Annotated[int32, In("7+")] = 0
    session_epoch: Annotated[int32, In("7+")] = -1
    topics: list[FetchTopic] = EMPTY
    forgotten_topics_data: Annotated[list[ForgottenTopic], In("7+")] = EMPTY
    rack_id: Annotated[str, In("11+")] = ""
    cluster_id: Annotated[str | None, In("12+"), Tag(0)] = None
    replica_state: Annotated[ReplicaState, In("15+"), Tag(1)] = field(default_factory=ReplicaState)


class AbortedTransaction(Struct):
    producer_id: int64 = 0
    first_offset: int64 = 0


class EpochEndOffset(Struct):
    epoch: int32 = -1
    end_offset: int64 = -1


class LeaderIdAndEpoch(Struct):
    leader_id: int32 = -1
    leader_epoch: int32 = -1


class SnapshotId(Struct):
    end_offset: int64 = -1
    epoch: int32 = -1


class PartitionData(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0
    high_watermark: int64 = 0
    last_stable_offset: int64 = -1
    log_start_offset: Annotated[int64, In("5+")] = -1
    aborted_transactions: list[AbortedTransaction] | None = EMPTY
    preferred_read_replica: Annotated[int32, In("11+")] = -1
    records: SentRecords | None = None
    diverging_epoch: Annotated[EpochEndOffset, In("12+"), Tag(0)] = field(default_factory=EpochEndOffset)
    current_leader: Annotated[LeaderIdAndEpoch, In("12+"), Tag(1)] = field(default_factory=LeaderIdAndEpoch)
    snapshot_id: Annotated[SnapshotId, In("12+"), Tag(2)] = field(default_factory=SnapshotId)


class FetchableTopicResponse(Struct):
    topic: Annotated[str, In("4-12")] = ""
    topic_id: Annotated[uuid, In("13+")] = ZERO_UUID
    partitions: list[PartitionData] = EMPTY


class NodeEndpoint(Struct):
    node_id: int32 = 0
    host: str = ""
    port: int32 = 0
    rack: str | None = None


class FetchResponse(Message):
    api_key = 1
    versions = "4-18"
    flexible = "12+"

    throttle_time_ms: int32 = 0
    error_code: Annotated[int16, In("7+")] = 0
    session_id: Annotated[int32, In("7+")] = 0
    responses: list[FetchableTopicResponse] = EMPTY
    node_endpoints: Annotated[list[NodeEndpoint], In("16+"), Tag(0)] = EMPTY
