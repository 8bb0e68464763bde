"""ShareAcknowledge: acknowledge acquired records (KIP-932)."""

from typing import Annotated

from msgspec import field

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, In, Message, Struct, int8, int16, int32, int64, uuid


class AcknowledgementBatch(Struct):
    first_offset: int64 = 0
    last_offset: int64 = 0
    acknowledge_types: list[int8] = EMPTY


class AcknowledgePartition(Struct):
    partition_index: int32 = 0
    acknowledgement_batches: list[AcknowledgementBatch] = EMPTY


class AcknowledgeTopic(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[AcknowledgePartition] = EMPTY


class ShareAcknowledgeRequest(Message):
    api_key = 79
    versions = "1-2"
    flexible = "1+"
    served_by = ("broker",)

    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: int32 = 0
    is_renew_ack: Annotated[bool, In("2+")] = False
    topics: list[AcknowledgeTopic] = EMPTY


class LeaderIdAndEpoch(Struct):
    leader_id: int32 = 0
    leader_epoch: int32 = 0


class PartitionData(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch = field(default_factory=LeaderIdAndEpoch)


class ShareAcknowledgeTopicResponse(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[PartitionData] = EMPTY


class NodeEndpoint(Struct):
    node_id: int32 = 0
    host: str = ""
    port: int32 = 0
    rack: str | None = None


class ShareAcknowledgeResponse(Message):
    api_key = 79
    versions = "1-2"
    flexible = "1+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: Annotated[int32, In("2+")] = 0
    responses: list[ShareAcknowledgeTopicResponse] = EMPTY
    node_endpoints: list[NodeEndpoint] = EMPTY
