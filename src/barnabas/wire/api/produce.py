"""Produce: append record batches to partitions."""

from typing import Annotated

from msgspec import field

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, In, Message, Records, Struct, Tag, int16, int32, int64, uuid


class PartitionProduceData(Struct):
    index: int32 = 0
    records: Records | None = None


class TopicProduceData(Struct):
    name: Annotated[str, In("3-12")] = ""
    topic_id: Annotated[uuid, In("13+")] = ZERO_UUID
    partition_data: list[PartitionProduceData] = EMPTY


class ProduceRequest(Message):
    api_key = 0
    versions = "3-13"
    flexible = "9+"
    served_by = ("broker",)

    transactional_id: str | None = None
    acks: int16 = 0
    timeout_ms: int32 = 0
    topic_data: list[TopicProduceData] = EMPTY


class BatchIndexAndErrorMessage(Struct):
    batch_index: int32 = 0
    batch_index_error_message: str | None = None


class LeaderIdAndEpoch(Struct):
    leader_id: int32 = -1
    leader_epoch: int32 = -1


class PartitionProduceResponse(Struct):
    index: int32 = 0
    error_code: int16 = 0
    base_offset: int64 = 0
    log_append_time_ms: int64 = -1
    log_start_offset: Annotated[int64, In("5+")] = -1
    record_errors: Annotated[list[BatchIndexAndErrorMessage], In("8+")] = EMPTY
    error_message: Annotated[str | None, In("8+")] = None
    current_leader: Annotated[LeaderIdAndEpoch, In("10+"), Tag(0)] = field(default_factory=LeaderIdAndEpoch)


class TopicProduceResponse(Struct):
    name: Annotated[str, In("3-12")] = ""
    topic_id: Annotated[uuid, In("13+")] = ZERO_UUID
    partition_responses: list[PartitionProduceResponse] = EMPTY


class NodeEndpoint(Struct):
    node_id: int32 = 0
    host: str = ""
    port: int32 = 0
    rack: str | None = None


class ProduceResponse(Message):
    api_key = 0
    versions = "3-13"
    flexible = "9+"

    responses: list[TopicProduceResponse] = EMPTY
    throttle_time_ms: int32 = 0
    node_endpoints: Annotated[list[NodeEndpoint], In("10+"), Tag(0)] = EMPTY
