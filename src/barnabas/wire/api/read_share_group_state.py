"""ReadShareGroupState: the state of share partitions (KIP-932)."""

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, Message, Struct, int8, int16, int32, int64, uuid


class PartitionData(Struct):
    partition: int32 = 0
    leader_epoch: int32 = 0


class ReadStateData(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[PartitionData] = EMPTY


class ReadShareGroupStateRequest(Message):
    api_key = 84
    versions = "0-0"
    flexible = "0+"
    served_by = ("broker",)

    group_id: str = ""
    topics: list[ReadStateData] = EMPTY


class StateBatch(Struct):
    first_offset: int64 = 0
    last_offset: int64 = 0
    delivery_state: int8 = 0
    delivery_count: int16 = 0


class PartitionResult(Struct):
    partition: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    state_epoch: int32 = 0
    start_offset: int64 = 0
    state_batches: list[StateBatch] = EMPTY


class ReadStateResult(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[PartitionResult] = EMPTY


class ReadShareGroupStateResponse(Message):
    api_key = 84
    versions = "0-0"
    flexible = "0+"

    results: list[ReadStateResult] = EMPTY
