"""AlterReplicaLogDirs: move replicas between folders of a broker."""

from barnabas.wire.schema import EMPTY, Message, Struct, int16, int32


class AlterReplicaLogDirTopic(Struct):
    name: str = ""
    partitions: list[int32] = EMPTY


class AlterReplicaLogDir(Struct):
    path: str = ""
    topics: list[AlterReplicaLogDirTopic] = EMPTY


class AlterReplicaLogDirsRequest(Message):
    api_key = 34
    versions = "1-2"
    flexible = "2+"
    served_by = ("broker",)

    dirs: list[AlterReplicaLogDir] = EMPTY


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = ""
    partitions: list[AlterReplicaLogDirPartitionResult] = EMPTY


class AlterReplicaLogDirsResponse(Message):
    api_key = 34
    versions = "1-2"
    flexible = "2+"

    throttle_time_ms: int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = EMPTY
