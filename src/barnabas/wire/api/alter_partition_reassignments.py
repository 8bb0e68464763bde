"""AlterPartitionReassignments: begin or cancel moving partitions to other brokers."""

from typing import Annotated

from barnabas.wire.schema import EMPTY, In, Message, Struct, int16, int32


class ReassignablePartition(Struct):
    partition_index: int32 = 0
    replicas: list[int32] | None = None


class ReassignableTopic(Struct):
    name: str = ""
    partitions: list[ReassignablePartition] = EMPTY


class AlterPartitionReassignmentsRequest(Message):
    api_key = 45
    versions = "0-1"
    flexible = "0+"
    served_by = ("broker", "controller")

    timeout_ms: int32 = 60000
    allow_replication_factor_change: Annotated[bool, In("1+")] = True
    topics: list[ReassignableTopic] = EMPTY


class ReassignablePartitionResponse(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""


class ReassignableTopicResponse(Struct):
    name: str = ""
    partitions: list[ReassignablePartitionResponse] = EMPTY


class AlterPartitionReassignmentsResponse(Message):
    api_key = 45
    versions = "0-1"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    allow_replication_factor_change: Annotated[bool, In("1+")] = True
    error_code: int16 = 0
    error_message: str | None = ""
    responses: list[ReassignableTopicResponse] = EMPTY
