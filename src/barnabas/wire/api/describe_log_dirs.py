"""DescribeLogDirs: folders of a broker and the sizes of what they hold."""

from typing import Annotated

from barnabas.wire.schema import EMPTY, In, Message, Struct, int16, int32, int64


class DescribableLogDirTopic(Struct):
    topic: str = ""
    partitions: list[int32] = EMPTY


class DescribeLogDirsRequest(Message):
    api_key = 35
    versions = "1-5"
    flexible = "2+"
    served_by = ("broker",)

    topics: list[DescribableLogDirTopic] | None = EMPTY


class DescribeLogDirsPartition(Struct):
    partition_index: int32 = 0
    partition_size: int64 = 0
    offset_lag: int64 = 0
    is_future_key: bool = False


class DescribeLogDirsTopic(Struct):
    name: str = ""
    partitions: list[DescribeLogDirsPartition] = EMPTY


class DescribeLogDirsResult(Struct):
    error_code: int16 = 0
    log_dir: str = ""
    topics: list[DescribeLogDirsTopic] = EMPTY
    total_bytes: Annotated[int64, In("4+")] = -1
    usable_bytes: Annotated[int64, In("4+")] = -1
    is_cordoned: Annotated[bool, In("5+")] = False


class DescribeLogDirsResponse(Message):
    api_key = 35
    versions = "1-5"
    flexible = "2+"

    throttle_time_ms: int32 = 0
    error_code: Annotated[int16, In("3+")] = 0
    results: list[DescribeLogDirsResult] = EMPTY
