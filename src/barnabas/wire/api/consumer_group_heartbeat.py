"""ConsumerGroupHeartbeat: a member of a consumer group joins, stays, reconciles or leaves (KIP-848)."""

from typing import Annotated

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, In, Message, Struct, int16, int32, uuid


class TopicPartitions(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[int32] = EMPTY


class ConsumerGroupHeartbeatRequest(Message):
    api_key = 68
    versions = "0-1"
    flexible = "0+"
    served_by = ("broker",)

    group_id: str = ""
    member_id: str = ""
    member_epoch: int32 = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int32 = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: Annotated[str | None, In("1+")] = None
    server_assignor: str | None = None
    topic_partitions: list[TopicPartitions] | None = None


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = EMPTY


class ConsumerGroupHeartbeatResponse(Message):
    api_key = 68
    versions = "0-1"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int32 = 0
    heartbeat_interval_ms: int32 = 0
    assignment: Assignment | None = None
