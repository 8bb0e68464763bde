"""AssignReplicasToDirs: a broker tells which folders hold which replicas."""

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, Message, Struct, int16, int32, int64, uuid


class AssignReplicasToDirsRequestPartitionData(Struct):
    partition_index: int32 = 0


class AssignReplicasToDirsRequestTopicData(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[AssignReplicasToDirsRequestPartitionData] = EMPTY


class AssignReplicasToDirsRequestDirectoryData(Struct):
    id: uuid = ZERO_UUID
    topics: list[AssignReplicasToDirsRequestTopicData] = EMPTY


class AssignReplicasToDirsRequest(Message):
    api_key = 73
    versions = "0-0"
    flexible = "0+"
    served_by = ("controller",)

    broker_id: int32 = 0
    broker_epoch: int64 = -1
    directories: list[AssignReplicasToDirsRequestDirectoryData] = EMPTY


class AssignReplicasToDirsResponsePartitionData(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0


class AssignReplicasToDirsResponseTopicData(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[AssignReplicasToDirsResponsePartitionData] = EMPTY


class AssignReplicasToDirsResponseDirectoryData(Struct):
    id: uuid = ZERO_UUID
    topics: list[AssignReplicasToDirsResponseTopicData] = EMPTY


class AssignReplicasToDirsResponse(Message):
    api_key = 73
    versions = "0-0"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    directories: list[AssignReplicasToDirsResponseDirectoryData] = EMPTY
