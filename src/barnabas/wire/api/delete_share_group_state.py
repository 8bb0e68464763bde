"""DeleteShareGroupState: forget the state of share partitions (KIP-932)."""

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, Message, Struct, int16, int32, uuid


class PartitionData(Struct):
    partition: int32 = 0


class DeleteStateData(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[PartitionData] = EMPTY


class DeleteShareGroupStateRequest(Message):
    api_key = 86
    versions = "0-0"
    flexible = "0+"
    served_by = ("broker",)

    group_id: str = ""
    topics: list[DeleteStateData] = EMPTY


class PartitionResult(Struct):
    partition: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None


class DeleteStateResult(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[PartitionResult] = EMPTY


class DeleteShareGroupStateResponse(Message):
    api_key = 86
    versions = "0-0"
    flexible = "0+"

    results: list[DeleteStateResult] = EMPTY
