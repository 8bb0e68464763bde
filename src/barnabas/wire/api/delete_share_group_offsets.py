"""DeleteShareGroupOffsets: forget where a share group starts reading."""

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, Message, Struct, int16, int32, uuid


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = ""


class DeleteShareGroupOffsetsRequest(Message):
    api_key = 92
    versions = "0-0"
    flexible = "0+"
    served_by = ("broker",)

    group_id: str = ""
    topics: list[DeleteShareGroupOffsetsRequestTopic] = EMPTY


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = ""
    topic_id: uuid = ZERO_UUID
    error_code: int16 = 0
    error_message: str | None = None


class DeleteShareGroupOffsetsResponse(Message):
    api_key = 92
    versions = "0-0"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    responses: list[DeleteShareGroupOffsetsResponseTopic] = EMPTY
