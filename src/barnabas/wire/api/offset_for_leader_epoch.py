"""OffsetForLeaderEpoch: where a leader epoch ended, to find where logs part."""

from typing import Annotated

from barnabas.wire.schema import EMPTY, In, Message, Struct, int16, int32, int64


class OffsetForLeaderPartition(Struct):
    partition: int32 = 0
    current_leader_epoch: int32 = -1
    leader_epoch: int32 = 0


class OffsetForLeaderTopic(Struct):
    topic: str = ""
    partitions: list[OffsetForLeaderPartition] = EMPTY


class OffsetForLeaderEpochRequest(Message):
    api_key = 23
    versions = "2-4"
    flexible = "4+"
    served_by = ("broker",)

    replica_id: Annotated[int32, In("3+")] = -2
    topics: list[OffsetForLeaderTopic] = EMPTY


class EpochEndOffset(Struct):
    error_code: int16 = 0
    partition: int32 = 0
    leader_epoch: int32 = -1
    end_offset: int64 = -1


class OffsetForLeaderTopicResult(Struct):
    topic: str = ""
    partitions: list[EpochEndOffset] = EMPTY


class OffsetForLeaderEpochResponse(Message):
    api_key = 23
    versions = "2-4"
    flexible = "4+"

    throttle_time_ms: int32 = 0
    topics: list[OffsetForLeaderTopicResult] = EMPTY
