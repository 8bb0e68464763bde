"""OffsetFetch: a group's positions, as they were kept."""

from typing import Annotated

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, In, Message, Null, Struct, int16, int32, int64, uuid


class OffsetFetchRequestTopics(Struct):
    name: Annotated[str, In("8-9")] = ""
    topic_id: Annotated[uuid, In("10+")] = ZERO_UUID
    partition_indexes: list[int32] = EMPTY


class OffsetFetchRequestGroup(Struct):
    group_id: str = ""
    member_id: Annotated[str | None, In("9+")] = None
    member_epoch: Annotated[int32, In("9+")] = -1
    topics: list[OffsetFetchRequestTopics] | None = EMPTY


class OffsetFetchRequestTopic(Struct):
    name: str = ""
    partition_indexes: list[int32] = EMPTY


class OffsetFetchRequest(Message):
    api_key = 9
    versions = "1-10"
    flexible = "6+"
    served_by = ("broker",)

    group_id: Annotated[str, In("1-7")] = ""
    groups: Annotated[list[OffsetFetchRequestGroup], In("8+")] = EMPTY
    topics: Annotated[list[OffsetFetchRequestTopic] | None, In("1-7"), Null("2-7")] = EMPTY
    require_stable: Annotated[bool, In("7+")] = False


class OffsetFetchResponsePartition(Struct):
    partition_index: int32 = 0
    committed_offset: int64 = 0
    committed_leader_epoch: Annotated[int32, In("5-7")] = -1
    metadata: str | None = ""
    error_code: int16 = 0


class OffsetFetchResponseTopic(Struct):
    name: str = ""
    partitions: list[OffsetFetchResponsePartition] = EMPTY


class OffsetFetchResponsePartitions(Struct):
    partition_index: int32 = 0
    committed_offset: int64 = 0
    committed_leader_epoch: int32 = -1
    metadata: str | None = ""
    error_code: int16 = 0


class OffsetFetchResponseTopics(Struct):
    name: Annotated[str, In("8-9")] = ""
    topic_id: Annotated[uuid, In("10+")] = ZERO_UUID
    partitions: list[OffsetFetchResponsePartitions] = EMPTY


class OffsetFetchResponseGroup(Struct):
    group_id: str = ""
    topics: list[OffsetFetchResponseTopics] = EMPTY
    error_code: int16 = 0


class OffsetFetchResponse(Message):
    api_key = 9
    versions = "1-10"
    flexible = "6+"

    throttle_time_ms: Annotated[int32, In("3+")] = 0
    topics: Annotated[list[OffsetFetchResponseTopic], In("1-7")] = EMPTY
    groups: Annotated[list[OffsetFetchResponseGroup], In("8+")] = EMPTY
    error_code: Annotated[int16, In("2-7")] = 0
