"""InitializeShareGroupState: begin the state of share partitions (KIP-932)."""

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, Message, Struct, int16, int32, int64, uuid


class PartitionData(Struct):
    partition: int32 = 0
    state_epoch: int32 = 0
    start_offset: int64 = 0


class InitializeStateData(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[PartitionData] = EMPTY


class InitializeShareGroupStateRequest(Message):
    api_key = 83
    versions = "0-0"
    flexible = "0+"
    served_by = ("broker",)

    group_id: str = ""
    topics: list[InitializeStateData] = EMPTY


class PartitionResult(Struct):
    partition: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None


class InitializeStateResult(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[PartitionResult] = EMPTY


class InitializeShareGroupStateResponse(Message):
    api_key = 83
    versions = "0-0"
    flexible = "0+"

    results: list[InitializeStateResult] = EMPTY
