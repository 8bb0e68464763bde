"""DeleteRecords: move the start of partitions forward."""

from barnabas.wire.schema import EMPTY, Message, Struct, int16, int32, int64


class DeleteRecordsPartition(Struct):
    partition_index: int32 = 0
    offset: int64 = 0


class DeleteRecordsTopic(Struct):
    name: str = ""
    partitions: list[DeleteRecordsPartition] = EMPTY


class DeleteRecordsRequest(Message):
    api_key = 21
    versions = "0-2"
    flexible = "2+"
    served_by = ("broker",)

    topics: list[DeleteRecordsTopic] = EMPTY
    timeout_ms: int32 = 0


class DeleteRecordsPartitionResult(Struct):
    partition_index: int32 = 0
    low_watermark: int64 = 0
    error_code: int16 = 0


class DeleteRecordsTopicResult(Struct):
    name: str = ""
    partitions: list[DeleteRecordsPartitionResult] = EMPTY


class DeleteRecordsResponse(Message):
    api_key = 21
    versions = "0-2"
    flexible = "2+"

    throttle_time_ms: int32 = 0
    topics: list[DeleteRecordsTopicResult] = EMPTY
