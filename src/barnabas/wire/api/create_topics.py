"""CreateTopics: new topics with their partitions and settings."""

from typing import Annotated

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, In, Message, Struct, Tag, int8, int16, int32, uuid


class CreatableReplicaAssignment(Struct):
    partition_index: int32 = 0
    broker_ids: list[int32] = EMPTY


class CreatableTopicConfig(Struct):
    name: str = ""
    value: str | None = ""


class CreatableTopic(Struct):
    name: str = ""
    num_partitions: int32 = 0
    replication_factor: int16 = 0
    assignments: list[CreatableReplicaAssignment] = EMPTY
    configs: list[CreatableTopicConfig] = EMPTY


class CreateTopicsRequest(Message):
    api_key = 19
    versions = "2-7"
    flexible = "5+"
    served_by = ("broker", "controller")

    topics: list[CreatableTopic] = EMPTY
    timeout_ms: int32 = 60000
    validate_only: bool = False


class CreatableTopicConfigs(Struct):
    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: int8 = -1
    is_sensitive: bool = False


class CreatableTopicResult(Struct):
    name: str = ""
    topic_id: Annotated[uuid, In("7+")] = ZERO_UUID
    error_code: int16 = 0
    error_message: str | None = ""
    num_partitions: Annotated[int32, In("5+")] = -1
    replication_factor: Annotated[int16, In("5+")] = -1
    configs: Annotated[list[CreatableTopicConfigs] | None, In("5+")] = EMPTY
    topic_config_error_code: Annotated[int16, In("5+"), Tag(0)] = 0


class CreateTopicsResponse(Message):
    api_key = 19
    versions = "2-7"
    flexible = "5+"

    throttle_time_ms: int32 = 0
    topics: list[CreatableTopicResult] = EMPTY
