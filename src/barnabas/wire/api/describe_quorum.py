"""DescribeQuorum: leader, voters and observers of the metadata log."""

from typing import Annotated

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, In, Message, Struct, int16, int32, int64, uint16, uuid


class DescribeQuorumRequestPartitionData(Struct):
    partition_index: int32 = 0


class DescribeQuorumRequestTopicData(Struct):
    topic_name: str = ""
    partitions: list[DescribeQuorumRequestPartitionData] = EMPTY


class DescribeQuorumRequest(Message):
    api_key = 55
    versions = "0-2"
    flexible = "0+"
    served_by = ("broker", "controller")

    topics: list[DescribeQuorumRequestTopicData] = EMPTY


class ReplicaState(Struct):
    replica_id: int32 = 0
    replica_directory_id: Annotated[uuid, In("2+")] = ZERO_UUID
    log_end_offset: int64 = 0
    last_fetch_timestamp: Annotated[int64, In("1+")] = -1
    last_caught_up_timestamp: Annotated[int64, In("1+")] = -1


class DescribeQuorumResponsePartitionData(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0
    error_message: Annotated[str | None, In("2+")] = ""
    leader_id: int32 = 0
    leader_epoch: int32 = 0
    high_watermark: int64 = 0
    current_voters: list[ReplicaState] = EMPTY
    observers: list[ReplicaState] = EMPTY


class DescribeQuorumResponseTopicData(Struct):
    topic_name: str = ""
    partitions: list[DescribeQuorumResponsePartitionData] = EMPTY


class Listener(Struct):
    name: str = ""
    host: str = ""
    port: uint16 = 0


class Node(Struct):
    node_id: int32 = 0
    listeners: list[Listener] = EMPTY


class DescribeQuorumResponse(Message):
    api_key = 55
    versions = "0-2"
    flexible = "0+"

    error_code: int16 = 0
    error_message: Annotated[str | None, In("2+")] = ""
    topics: list[DescribeQuorumResponseTopicData] = EMPTY
    nodes: Annotated[list[Node], In("2+")] = EMPTY
