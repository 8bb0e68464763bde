"""Records of `__cluster_metadata`: topics, partitions and settings."""

from typing import Annotated

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, In, Message, Tag, int8, int32, uuid


class ClearElrRecord(Message):
    versions = "0-0"
    flexible = "0+"

    topic_name: str = ""


class ConfigRecord(Message):
    versions = "0-0"
    flexible = "0+"

    resource_type: int8 = 0
    resource_name: str = ""
    name: str = ""
    value: str | None = ""


class PartitionChangeRecord(Message):
    versions = "0-2"
    flexible = "0+"

    partition_id: int32 = -1
    topic_id: uuid = ZERO_UUID
    isr: Annotated[list[int32] | None, Tag(0)] = None
    leader: Annotated[int32, Tag(1)] = -2
    replicas: Annotated[list[int32] | None, Tag(2)] = None
    removing_replicas: Annotated[list[int32] | None, Tag(3)] = None
    adding_replicas: Annotated[list[int32] | None, Tag(4)] = None
    leader_recovery_state: Annotated[int8, Tag(5)] = -1
    eligible_leader_replicas: Annotated[list[int32] | None, In("2+"), Tag(6)] = None
    last_known_elr: Annotated[list[int32] | None, In("2+"), Tag(7)] = None
    directories: Annotated[list[uuid] | None, In("1+"), Tag(8)] = None


class PartitionRecord(Message):
    versions = "0-2"
    flexible = "0+"

    partition_id: int32 = -1
    topic_id: uuid = ZERO_UUID
    replicas: list[int32] = EMPTY
    isr: list[int32] = EMPTY
    removing_replicas: list[int32] = EMPTY
    adding_replicas: list[int32] = EMPTY
    leader: int32 = -1
    leader_epoch: int32 = -1
    partition_epoch: int32 = -1
    directories: Annotated[list[uuid], In("1+")] = EMPTY
    leader_recovery_state: Annotated[int8, Tag(0)] = 0
    eligible_leader_replicas: Annotated[list[int32] | None, In("2+"), Tag(1)] = None
    last_known_elr: Annotated[list[int32] | None, In("2+"), Tag(2)] = None


class RemoveTopicRecord(Message):
    versions = "0-0"
    flexible = "0+"

    topic_id: uuid = ZERO_UUID


class TopicRecord(Message):
    versions = "0-0"
    flexible = "0+"

    name: str = ""
    topic_id: uuid = ZERO_UUID
