"""EndQuorumEpoch: the leader of the metadata log steps down."""

from typing import Annotated

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, In, Message, Struct, Tag, int16, int32, uint16, uuid


class ReplicaInfo(Struct):
    candidate_id: int32 = 0
    candidate_directory_id: uuid = ZERO_UUID


class EndQuorumEpochRequestPartitionData(Struct):
    partition_index: int32 = 0
    leader_id: int32 = 0
    leader_epoch: int32 = 0
    preferred_successors: Annotated[list[int32], In("0")] = EMPTY
    preferred_candidates: Annotated[list[ReplicaInfo], In("1+")] = EMPTY


class EndQuorumEpochRequestTopicData(Struct):
    topic_name: str = ""
    partitions: list[EndQuorumEpochRequestPartitionData] = EMPTY


class LeaderEndpoint(Struct):
    name: str = ""
    host: str = ""
    port: uint16 = 0


class EndQuorumEpochRequest(Message):
    api_key = 54
    versions = "0-1"
    flexible = "1+"
    served_by = ("controller",)

    cluster_id: str | None = None
    topics: list[EndQuorumEpochRequestTopicData] = EMPTY
    leader_endpoints: Annotated[list[LeaderEndpoint], In("1+")] = EMPTY


class EndQuorumEpochResponsePartitionData(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0
    leader_id: int32 = 0
    leader_epoch: int32 = 0


class EndQuorumEpochResponseTopicData(Struct):
    topic_name: str = ""
    partitions: list[EndQuorumEpochResponsePartitionData] = EMPTY


class NodeEndpoint(Struct):
    node_id: int32 = 0
    host: str = ""
    port: uint16 = 0


class EndQuorumEpochResponse(Message):
    api_key = 54
    versions = "0-1"
    flexible = "1+"

    error_code: int16 = 0
    topics: list[EndQuorumEpochResponseTopicData] = EMPTY
    node_endpoints: Annotated[list[NodeEndpoint], In("1+"), Tag(0)] = EMPTY
