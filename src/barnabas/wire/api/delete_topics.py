"""DeleteTopics: topics to be removed, by name or by id."""

from typing import Annotated

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, In, Message, Null, Struct, int16, int32, uuid


class DeleteTopicState(Struct):
    name: str | None = None
    topic_id: uuid = ZERO_UUID


class DeleteTopicsRequest(Message):
    api_key = 20
    versions = "1-6"
    flexible = "4+"
    served_by = ("broker", "controller")

    topic_names: Annotated[list[str], In("1-5")] = EMPTY
    topics: Annotated[list[DeleteTopicState], In("6+")] = EMPTY
    timeout_ms: int32 = 0


class DeletableTopicResult(Struct):
    name: Annotated[str | None, Null("6+")] = ""
    topic_id: Annotated[uuid, In("6+")] = ZERO_UUID
    error_code: int16 = 0
    error_message: Annotated[str | None, In("5+")] = None


class DeleteTopicsResponse(Message):
    api_key = 20
    versions = "1-6"
    flexible = "4+"

    throttle_time_ms: int32 = 0
    responses: list[DeletableTopicResult] = EMPTY
