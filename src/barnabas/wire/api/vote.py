"""Vote: a candidate, or one who would become one, asks for votes."""

from typing import Annotated

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, In, Message, Struct, Tag, int16, int32, int64, uint16, uuid


class VoteRequestPartitionData(Struct):
    partition_index: int32 = 0
    replica_epoch: int32 = 0
    replica_id: int32 = 0
    replica_directory_id: Annotated[uuid, In("1+")] = ZERO_UUID
    voter_directory_id: Annotated[uuid, In("1+")] = ZERO_UUID
    last_offset_epoch: int32 = 0
    last_offset: int64 = 0
    pre_vote: Annotated[bool, In("2+")] = False


class VoteRequestTopicData(Struct):
    topic_name: str = ""
    partitions: list[VoteRequestPartitionData] = EMPTY


class VoteRequest(Message):
    api_key = 52
    versions = "0-2"
    flexible = "0+"
    served_by = ("controller",)

    cluster_id: str | None = None
    voter_id: Annotated[int32, In("1+")] = -1
    topics: list[VoteRequestTopicData] = EMPTY


class VoteResponsePartitionData(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0
    leader_id: int32 = 0
    leader_epoch: int32 = 0
    vote_granted: bool = False


class VoteResponseTopicData(Struct):
    topic_name: str = ""
    partitions: list[VoteResponsePartitionData] = EMPTY


class NodeEndpoint(Struct):
    node_id: int32 = 0
    host: str = ""
    port: uint16 = 0


class VoteResponse(Message):
    api_key = 52
    versions = "0-2"
    flexible = "0+"

    error_code: int16 = 0
    topics: list[VoteResponseTopicData] = EMPTY
    node_endpoints: Annotated[list[NodeEndpoint], In("1+"), Tag(0)] = EMPTY
