"""ShareGroupHeartbeat: a member of a share group joins, stays or leaves (KIP-932)."""

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, Message, Struct, int16, int32, uuid


class ShareGroupHeartbeatRequest(Message):
    api_key = 76
    versions = "1-1"
    flexible = "1+"
    served_by = ("broker",)

    group_id: str = ""
    member_id: str = ""
    member_epoch: int32 = 0
    rack_id: str | None = None
    subscribed_topic_names: list[str] | None = None


class TopicPartitions(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[int32] = EMPTY


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = EMPTY


class ShareGroupHeartbeatResponse(Message):
    api_key = 76
    versions = "1-1"
    flexible = "1+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int32 = 0
    heartbeat_interval_ms: int32 = 0
    assignment: Assignment | None = None
