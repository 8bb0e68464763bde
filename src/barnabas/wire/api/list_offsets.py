"""ListOffsets: the offset at a timestamp, or at either end of a partition."""

from typing import Annotated

from barnabas.wire.schema import EMPTY, In, Message, Struct, int8, int16, int32, int64


class ListOffsetsPartition(Struct):
    partition_index: int32 = 0
    current_leader_epoch: Annotated[int32, In("4+")] = -1
    timestamp: int64 = 0


class ListOffsetsTopic(Struct):
    name: str = ""
    partitions: list[ListOffsetsPartition] = EMPTY


class ListOffsetsRequest(Message):
    api_key = 2
    versions = "1-11"
    flexible = "6+"
    served_by = ("broker",)

    replica_id: int32 = 0
    isolation_level: Annotated[int8, In("2+")] = 0
    topics: list[ListOffsetsTopic] = EMPTY
    timeout_ms: Annotated[int32, In("10+")] = 0


class ListOffsetsPartitionResponse(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0
    timestamp: int64 = -1
    offset: int64 = -1
    leader_epoch: Annotated[int32, In("4+")] = -1


class ListOffsetsTopicResponse(Struct):
    name: str = ""
    partitions: list[ListOffsetsPartitionResponse] = EMPTY


class ListOffsetsResponse(Message):
    api_key = 2
    versions = "1-11"
    flexible = "6+"

    throttle_time_ms: Annotated[int32, In("2+")] = 0
    topics: list[ListOffsetsTopicResponse] = EMPTY
