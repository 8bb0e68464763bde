"""TxnOffsetCommit: a group's positions, valid when the transaction commits."""

from typing import Annotated

from barnabas.wire.schema import EMPTY, In, Message, Struct, int16, int32, int64


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int32 = 0
    committed_offset: int64 = 0
    committed_leader_epoch: Annotated[int32, In("2+")] = -1
    committed_metadata: str | None = ""


class TxnOffsetCommitRequestTopic(Struct):
    name: str = ""
    partitions: list[TxnOffsetCommitRequestPartition] = EMPTY


class TxnOffsetCommitRequest(Message):
    api_key = 28
    versions = "0-5"
    flexible = "3+"
    served_by = ("broker",)

    transactional_id: str = ""
    group_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    generation_id: Annotated[int32, In("3+")] = -1
    member_id: Annotated[str, In("3+")] = ""
    group_instance_id: Annotated[str | None, In("3+")] = None
    topics: list[TxnOffsetCommitRequestTopic] = EMPTY


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0


class TxnOffsetCommitResponseTopic(Struct):
    name: str = ""
    partitions: list[TxnOffsetCommitResponsePartition] = EMPTY


class TxnOffsetCommitResponse(Message):
    api_key = 28
    versions = "0-5"
    flexible = "3+"

    throttle_time_ms: int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = EMPTY
