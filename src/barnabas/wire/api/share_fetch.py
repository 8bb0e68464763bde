"""ShareFetch: acquire records, and acknowledge earlier ones on the way (KIP-932)."""

from typing import Annotated

from msgspec import field

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, In, Message, SentRecords, Struct, int8, int16, int32, int64, uuid


class AcknowledgementBatch(Struct):
    first_offset: int64 = 0
    last_offset: int64 = 0
    acknowledge_types: list[int8] = EMPTY


class FetchPartition(Struct):
    partition_index: int32 = 0
    acknowledgement_batches: list[AcknowledgementBatch] = EMPTY


class FetchTopic(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[FetchPartition] = EMPTY


class ForgottenTopic(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[int32] = EMPTY


class ShareFetchRequest(Message):
    api_key = 78
    versions = "1-2"
    flexible = "1+"
    served_by = ("broker",)

    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: int32 = 0
    max_wait_ms: int32 = 0
    min_bytes: int32 = 0
    max_bytes: int32 = (1 << 31) - 1
    max_records: int32 = 0
    batch_size: int32 = 0
    share_acquire_mode: Annotated[int8, In("2+")] = 0
    is_renew_ack: Annotated[bool, In("2+")] = False
    topics: list[FetchTopic] = EMPTY
    forgotten_topics_data: list[ForgottenTopic] = EMPTY


class LeaderIdAndEpoch(Struct):
    leader_id: int32 = 0
    leader_epoch: int32 = 0


class AcquiredRecords(Struct):
    first_offset: int64 = 0
    last_offset: int64 = 0
    delivery_count: int16 = 0


class PartitionData(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    acknowledge_error_code: int16 = 0
    acknowledge_error_message: str | None = None
    current_leader: LeaderIdAndEpoch = field(default_factory=LeaderIdAndEpoch)
    records: SentRecords = b""
    acquired_records: list[AcquiredRecords] = EMPTY


class ShareFetchableTopicResponse(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[PartitionData] = EMPTY


class NodeEndpoint(Struct):
    node_id: int32 = 0
    host: str = ""
    port: int32 = 0
    rack: str | None = None


class ShareFetchResponse(Message):
    api_key = 78
    versions = "1-2"
    flexible = "1+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int32 = 0
    responses: list[ShareFetchableTopicResponse] = EMPTY
    node_endpoints: list[NodeEndpoint] = EMPTY
