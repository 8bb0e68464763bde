"""OffsetCommit: a group's positions, to be kept."""

from typing import Annotated

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, In, Message, Struct, int16, int32, int64, uuid


class OffsetCommitRequestPartition(Struct):
    partition_index: int32 = 0
    committed_offset: int64 = 0
    committed_leader_epoch: Annotated[int32, In("6+")] = -1
    committed_metadata: str | None = ""


class OffsetCommitRequestTopic(Struct):
    name: Annotated[str, In("2-9")] = ""
    topic_id: Annotated[uuid, In("10+")] = ZERO_UUID
    partitions: list[OffsetCommitRequestPartition] = EMPTY


class OffsetCommitRequest(Message):
    api_key = 8
    versions = "2-10"
    flexible = "8+"
    served_by = ("broker",)

    group_id: str = ""
    generation_id_or_member_epoch: int32 = -1
    member_id: str = ""
    retention_time_ms: Annotated[int64, In("2-4")] = -1
    group_instance_id: Annotated[str | None, In("7+")] = None
    topics: list[OffsetCommitRequestTopic] = EMPTY


class OffsetCommitResponsePartition(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0


class OffsetCommitResponseTopic(Struct):
    name: Annotated[str, In("2-9")] = ""
    topic_id: Annotated[uuid, In("10+")] = ZERO_UUID
    partitions: list[OffsetCommitResponsePartition] = EMPTY


class OffsetCommitResponse(Message):
    api_key = 8
    versions = "2-10"
    flexible = "8+"

    throttle_time_ms: Annotated[int32, In("3+")] = 0
    topics: list[OffsetCommitResponseTopic] = EMPTY
