"""ConsumerGroupDescribe: consumer groups and their members (KIP-848)."""

from typing import Annotated

from msgspec import field

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, In, Message, Struct, int8, int16, int32, uuid


class ConsumerGroupDescribeRequest(Message):
    api_key = 69
    versions = "0-1"
    flexible = "0+"
    served_by = ("broker",)

    group_ids: list[str] = EMPTY
    include_authorized_operations: bool = False


class TopicPartitions(Struct):
    topic_id: uuid = ZERO_UUID
    topic_name: str = ""
    partitions: list[int32] = EMPTY


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = EMPTY


class Member(Struct):
    member_id: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: int32 = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = EMPTY
    subscribed_topic_regex: str | None = None
    assignment: Assignment = field(default_factory=Assignment)
    target_assignment: Assignment = field(default_factory=Assignment)
    member_type: Annotated[int8, In("1+")] = -1


class DescribedGroup(Struct):
    error_code: int16 = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: int32 = 0
    assignment_epoch: int32 = 0
    assignor_name: str = ""
    members: list[Member] = EMPTY
    authorized_operations: int32 = -(1 << 31)


class ConsumerGroupDescribeResponse(Message):
    api_key = 69
    versions = "0-1"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    groups: list[DescribedGroup] = EMPTY
