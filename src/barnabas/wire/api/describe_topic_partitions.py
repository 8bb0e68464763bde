"""DescribeTopicPartitions: partitions of topics, page by page."""

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, Message, Struct, int16, int32, uuid


class TopicRequest(Struct):
    name: str = ""


class Cursor(Struct):
    topic_name: str = ""
    partition_index: int32 = 0


class DescribeTopicPartitionsRequest(Message):
    api_key = 75
    versions = "0-0"
    flexible = "0+"
    served_by = ("broker",)

    topics: list[TopicRequest] = EMPTY
    response_partition_limit: int32 = 2000
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int16 = 0
    partition_index: int32 = 0
    leader_id: int32 = 0
    leader_epoch: int32 = -1
    replica_nodes: list[int32] = EMPTY
    isr_nodes: list[int32] = EMPTY
    eligible_leader_replicas: list[int32] | None = None
    last_known_elr: list[int32] | None = None
    offline_replicas: list[int32] = EMPTY


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int16 = 0
    name: str | None = ""
    topic_id: uuid = ZERO_UUID
    is_internal: bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = EMPTY
    topic_authorized_operations: int32 = -(1 << 31)


class DescribeTopicPartitionsResponse(Message):
    api_key = 75
    versions = "0-0"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = EMPTY
    next_cursor: Cursor | None = None
