"""BeginQuorumEpoch: the new leader of the metadata log makes itself known."""

from typing import Annotated

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, In, Message, Struct, Tag, int16, int32, uint16, uuid


class BeginQuorumEpochRequestPartitionData(Struct):
    partition_index: int32 = 0
    voter_directory_id: Annotated[uuid, In("1+")] = ZERO_UUID
    leader_id: int32 = 0
    leader_epoch: int32 = 0


class BeginQuorumEpochRequestTopicData(Struct):
    topic_name: str = ""
    partitions: list[BeginQuorumEpochRequestPartitionData] = EMPTY


class LeaderEndpoint(Struct):
    name: str = ""
    host: str = ""
    port: uint16 = 0


class BeginQuorumEpochRequest(Message):
    api_key = 53
    versions = "0-1"
    flexible = "1+"
    served_by = ("controller",)

    cluster_id: str | None = None
    voter_id: Annotated[int32, In("1+")] = -1
    topics: list[BeginQuorumEpochRequestTopicData] = EMPTY
    leader_endpoints: Annotated[list[LeaderEndpoint], In("1+")] = EMPTY


class BeginQuorumEpochResponsePartitionData(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0
    leader_id: int32 = 0
    leader_epoch: int32 = 0


class BeginQuorumEpochResponseTopicData(Struct):
    topic_name: str = ""
    partitions: list[BeginQuorumEpochResponsePartitionData] = EMPTY


class NodeEndpoint(Struct):
    node_id: int32 = 0
    host: str = ""
    port: uint16 = 0


class BeginQuorumEpochResponse(Message):
    api_key = 53
    versions = "0-1"
    flexible = "1+"

    error_code: int16 = 0
    topics: list[BeginQuorumEpochResponseTopicData] = EMPTY
    node_endpoints: Annotated[list[NodeEndpoint], In("1+"), Tag(0)] = EMPTY
