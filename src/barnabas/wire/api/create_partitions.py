"""CreatePartitions: more partitions for topics."""

from barnabas.wire.schema import EMPTY, Message, Struct, int16, int32


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int32] = EMPTY


class CreatePartitionsTopic(Struct):
    name: str = ""
    count: int32 = 0
    assignments: list[CreatePartitionsAssignment] | None = EMPTY


class CreatePartitionsRequest(Message):
    api_key = 37
    versions = "0-3"
    flexible = "2+"
    served_by = ("broker", "controller")

    topics: list[CreatePartitionsTopic] = EMPTY
    timeout_ms: int32 = 0
    validate_only: bool = False


class CreatePartitionsTopicResult(Struct):
    name: str = ""
    error_code: int16 = 0
    error_message: str | None = None


class CreatePartitionsResponse(Message):
    api_key = 37
    versions = "0-3"
    flexible = "2+"

    throttle_time_ms: int32 = 0
    results: list[CreatePartitionsTopicResult] = EMPTY
