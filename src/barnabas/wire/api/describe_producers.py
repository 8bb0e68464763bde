"""DescribeProducers: producers with state in partitions."""

from barnabas.wire.schema import EMPTY, Message, Struct, int16, int32, int64


class TopicRequest(Struct):
    name: str = ""
    partition_indexes: list[int32] = EMPTY


class DescribeProducersRequest(Message):
    api_key = 61
    versions = "0-0"
    flexible = "0+"
    served_by = ("broker",)

    topics: list[TopicRequest] = EMPTY


class ProducerState(Struct):
    producer_id: int64 = 0
    producer_epoch: int32 = 0
    last_sequence: int32 = -1
    last_timestamp: int64 = -1
    coordinator_epoch: int32 = 0
    current_txn_start_offset: int64 = -1


class PartitionResponse(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    active_producers: list[ProducerState] = EMPTY


class TopicResponse(Struct):
    name: str = ""
    partitions: list[PartitionResponse] = EMPTY


class DescribeProducersResponse(Message):
    api_key = 61
    versions = "0-0"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    topics: list[TopicResponse] = EMPTY
