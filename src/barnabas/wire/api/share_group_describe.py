"""ShareGroupDescribe: share groups and their members (KIP-932)."""

from msgspec import field

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, Message, Struct, int16, int32, uuid


class ShareGroupDescribeRequest(Message):
    api_key = 77
    versions = "1-1"
    flexible = "1+"
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
    rack_id: str | None = None
    member_epoch: int32 = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = EMPTY
    assignment: Assignment = field(default_factory=Assignment)


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


class ShareGroupDescribeResponse(Message):
    api_key = 77
    versions = "1-1"
    flexible = "1+"

    throttle_time_ms: int32 = 0
    groups: list[DescribedGroup] = EMPTY
