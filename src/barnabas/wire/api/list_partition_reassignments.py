"""ListPartitionReassignments: moves that are under way."""

from barnabas.wire.schema import EMPTY, Message, Struct, int16, int32


class ListPartitionReassignmentsTopics(Struct):
    name: str = ""
    partition_indexes: list[int32] = EMPTY


class ListPartitionReassignmentsRequest(Message):
    api_key = 46
    versions = "0-0"
    flexible = "0+"
    served_by = ("broker", "controller")

    timeout_ms: int32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None


class OngoingPartitionReassignment(Struct):
    partition_index: int32 = 0
    replicas: list[int32] = EMPTY
    adding_replicas: list[int32] = EMPTY
    removing_replicas: list[int32] = EMPTY


class OngoingTopicReassignment(Struct):
    name: str = ""
    partitions: list[OngoingPartitionReassignment] = EMPTY


class ListPartitionReassignmentsResponse(Message):
    api_key = 46
    versions = "0-0"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    topics: list[OngoingTopicReassignment] = EMPTY
