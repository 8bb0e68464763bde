"""Control records of the raft log and its snapshots, and the file `quorum-state`."""

from typing import Annotated

from msgspec import field

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, In, Message, Struct, int16, int32, int64, uint16, uuid


class KRaftVersionRecord(Message):
    versions = "0-0"
    flexible = "0+"

    version: int16 = 0
    kraft_version: int16 = 0


class LeaderChangeMessageVoter(Struct):
    voter_id: int32 = 0
    voter_directory_id: Annotated[uuid, In("1+")] = ZERO_UUID


class LeaderChangeMessage(Message):
    versions = "0-1"
    flexible = "0+"

    version: int16 = 0
    leader_id: int32 = 0
    voters: list[LeaderChangeMessageVoter] = EMPTY
    granting_voters: list[LeaderChangeMessageVoter] = EMPTY


class QuorumStateVoter(Struct):
    voter_id: int32 = 0


class QuorumState(Message):
    versions = "0-1"
    flexible = "0+"

    cluster_id: Annotated[str, In("0")] = ""
    leader_id: int32 = -1
    leader_epoch: int32 = -1
    voted_id: int32 = -1
    voted_directory_id: Annotated[uuid, In("1+")] = ZERO_UUID
    applied_offset: Annotated[int64, In("0")] = 0
    current_voters: Annotated[list[QuorumStateVoter] | None, In("0")] = EMPTY


class SnapshotFooterRecord(Message):
    versions = "0-0"
    flexible = "0+"

    version: int16 = 0


class SnapshotHeaderRecord(Message):
    versions = "0-0"
    flexible = "0+"

    version: int16 = 0
    last_contained_log_timestamp: int64 = 0


class Endpoint(Struct):
    name: str = ""
    host: str = ""
    port: uint16 = 0


class KRaftVersionFeature(Struct):
    min_supported_version: int16 = 0
    max_supported_version: int16 = 0


class VotersVoter(Struct):
    voter_id: int32 = 0
    voter_directory_id: uuid = ZERO_UUID
    endpoints: list[Endpoint] = EMPTY
    kraft_version_feature: KRaftVersionFeature = field(default_factory=KRaftVersionFeature)


class VotersRecord(Message):
    versions = "0-0"
    flexible = "0+"

    version: int16 = 0
    voters: list[VotersVoter] = EMPTY
