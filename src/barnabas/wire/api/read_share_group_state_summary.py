"""ReadShareGroupStateSummary: where share partitions start (KIP-932)."""

from typing import Annotated

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, In, Message, Struct, int16, int32, int64, uuid


class PartitionData(Struct):
    partition: int32 = 0
    leader_epoch: int32 = 0


class ReadStateSummaryData(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[PartitionData] = EMPTY


class ReadShareGroupStateSummaryRequest(Message):
    api_key = 87
    versions = "0-1"
    flexible = "0+"
    served_by = ("broker",)

    group_id: str = ""
    topics: list[ReadStateSummaryData] = EMPTY


class PartitionResult(Struct):
    partition: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    state_epoch: int32 = 0
    leader_epoch: int32 = 0
    start_offset: int64 = 0
    delivery_complete_count: Annotated[int32, In("1+")] = -1


class ReadStateSummaryResult(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[PartitionResult] = EMPTY


class ReadShareGroupStateSummaryResponse(Message):
    api_key = 87
    versions = "0-1"
    flexible = "0+"

    results: list[ReadStateSummaryResult] = EMPTY
