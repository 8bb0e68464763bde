"""AlterShareGroupOffsets: set where a share group starts reading."""

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, Message, Struct, int16, int32, int64, uuid


class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: int32 = 0
    start_offset: int64 = 0


class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = ""
    partitions: list[AlterShareGroupOffsetsRequestPartition] = EMPTY


class AlterShareGroupOffsetsRequest(Message):
    api_key = 91
    versions = "0-0"
    flexible = "0+"
    served_by = ("broker",)

    group_id: str = ""
    topics: list[AlterShareGroupOffsetsRequestTopic] = EMPTY


class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None


class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = ""
    topic_id: uuid = ZERO_UUID
    partitions: list[AlterShareGroupOffsetsResponsePartition] = EMPTY


class AlterShareGroupOffsetsResponse(Message):
    api_key = 91
    versions = "0-0"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    responses: list[AlterShareGroupOffsetsResponseTopic] = EMPTY
