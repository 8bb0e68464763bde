"""WriteShareGroupState: changes to the state of share partitions (KIP-932)."""

from typing import Annotated

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, In, Message, Struct, int8, int16, int32, int64, uuid


class StateBatch(Struct):
    first_offset: int64 = 0
    last_offset: int64 = 0
    delivery_state: int8 = 0
    delivery_count: int16 = 0


class PartitionData(Struct):
    partition: int32 = 0
    state_epoch: int32 = 0
    leader_epoch: int32 = 0
    start_offset: int64 = 0
    delivery_complete_count: Annotated[int32, In("1+")] = -1
    state_batches: list[StateBatch] = EMPTY


class WriteStateData(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[PartitionData] = EMPTY


class WriteShareGroupStateRequest(Message):
    api_key = 85
    versions = "0-1"
    flexible = "0+"
    served_by = ("broker",)

    group_id: str = ""
    topics: list[WriteStateData] = EMPTY


class PartitionResult(Struct):
    partition: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None


class WriteStateResult(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[PartitionResult] = EMPTY


class WriteShareGroupStateResponse(Message):
    api_key = 85
    versions = "0-1"
    flexible = "0+"

    results: list[WriteStateResult] = EMPTY
