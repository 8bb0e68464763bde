"""DescribeShareGroupOffsets: where share groups start reading."""

from typing import Annotated

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, In, Message, Struct, int16, int32, int64, uuid


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = ""
    partitions: list[int32] = EMPTY


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: str = ""
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = EMPTY


class DescribeShareGroupOffsetsRequest(Message):
    api_key = 90
    versions = "0-1"
    flexible = "0+"
    served_by = ("broker",)

    groups: list[DescribeShareGroupOffsetsRequestGroup] = EMPTY


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: int32 = 0
    start_offset: int64 = 0
    leader_epoch: int32 = 0
    lag: Annotated[int64, In("1+")] = -1
    error_code: int16 = 0
    error_message: str | None = None


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = ""
    topic_id: uuid = ZERO_UUID
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = EMPTY


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: str = ""
    topics: list[DescribeShareGroupOffsetsResponseTopic] = EMPTY
    error_code: int16 = 0
    error_message: str | None = None


class DescribeShareGroupOffsetsResponse(Message):
    api_key = 90
    versions = "0-1"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    groups: list[DescribeShareGroupOffsetsResponseGroup] = EMPTY
