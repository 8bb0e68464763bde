"""UpdateRaftVoter: a voter's endpoints or supported versions have changed."""

from typing import Annotated

from msgspec import field

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, Message, Struct, Tag, int16, int32, uint16, uuid


class Listener(Struct):
    name: str = ""
    host: str = ""
    port: uint16 = 0


class KRaftVersionFeature(Struct):
    min_supported_version: int16 = 0
    max_supported_version: int16 = 0


class UpdateRaftVoterRequest(Message):
    api_key = 82
    versions = "0-0"
    flexible = "0+"
    served_by = ("controller",)

    cluster_id: str | None = ""
    current_leader_epoch: int32 = 0
    voter_id: int32 = 0
    voter_directory_id: uuid = ZERO_UUID
    listeners: list[Listener] = EMPTY
    kraft_version_feature: KRaftVersionFeature = field(default_factory=KRaftVersionFeature)


class CurrentLeader(Struct):
    leader_id: int32 = -1
    leader_epoch: int32 = -1
    host: str = ""
    port: int32 = 0


class UpdateRaftVoterResponse(Message):
    api_key = 82
    versions = "0-0"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    current_leader: Annotated[CurrentLeader, Tag(0)] = field(default_factory=CurrentLeader)
