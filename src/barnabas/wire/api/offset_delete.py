"""OffsetDelete: forget a group's positions in some partitions."""

from barnabas.wire.schema import EMPTY, Message, Struct, int16, int32


class OffsetDeleteRequestPartition(Struct):
    partition_index: int32 = 0


class OffsetDeleteRequestTopic(Struct):
    name: str = ""
    partitions: list[OffsetDeleteRequestPartition] = EMPTY


class OffsetDeleteRequest(Message):
    api_key = 47
    versions = "0-0"
    served_by = ("broker",)

    group_id: str = ""
    topics: list[OffsetDeleteRequestTopic] = EMPTY


class OffsetDeleteResponsePartition(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0


class OffsetDeleteResponseTopic(Struct):
    name: str = ""
    partitions: list[OffsetDeleteResponsePartition] = EMPTY


class OffsetDeleteResponse(Message):
    api_key = 47
    versions = "0-0"

    error_code: int16 = 0
    throttle_time_ms: int32 = 0
    topics: list[OffsetDeleteResponseTopic] = EMPTY
