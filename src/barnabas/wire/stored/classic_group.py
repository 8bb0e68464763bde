"""Records of `__consumer_offsets`: classic groups and the offsets of all groups."""

from typing import Annotated

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, In, Message, Struct, Tag, int32, int64, uuid


class GroupMetadataKey(Message):
    versions = "0-0"

    group: str = ""


class MemberMetadata(Struct):
    member_id: str = ""
    group_instance_id: Annotated[str | None, In("3+")] = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout: Annotated[int32, In("1+")] = -1
    session_timeout: int32 = 0
    subscription: bytes = b""
    assignment: bytes = b""


class GroupMetadataValue(Message):
    """A classic group and its members."""

    versions = "0-4"
    flexible = "4+"

    protocol_type: str = ""
    generation: int32 = 0
    protocol: str | None = ""
    leader: str | None = ""
    current_state_timestamp: Annotated[int64, In("2+")] = -1
    members: list[MemberMetadata] = EMPTY


class LegacyOffsetCommitKey(Message):
    versions = "0-0"

    group: str = ""
    topic: str = ""
    partition: int32 = 0


class LegacyOffsetCommitValue(Message):
    versions = "0-0"

    offset: int64 = 0
    metadata: str = ""
    commit_timestamp: int64 = 0


class OffsetCommitKey(Message):
    versions = "0-0"

    group: str = ""
    topic: str = ""
    partition: int32 = 0


class OffsetCommitValue(Message):
    versions = "0-4"
    flexible = "4+"

    offset: int64 = 0
    leader_epoch: Annotated[int32, In("3+")] = -1
    metadata: str = ""
    commit_timestamp: int64 = 0
    expire_timestamp: Annotated[int64, In("1")] = -1
    topic_id: Annotated[uuid, In("4+"), Tag(0)] = ZERO_UUID
