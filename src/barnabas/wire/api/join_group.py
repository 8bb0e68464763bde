"""JoinGroup: a member enters a classic group, or enters its next generation."""

from typing import Annotated

from barnabas.wire.schema import EMPTY, In, Message, Null, Struct, int16, int32


class JoinGroupRequestProtocol(Struct):
    name: str = ""
    metadata: bytes = b""


class JoinGroupRequest(Message):
    api_key = 11
    versions = "0-9"
    flexible = "6+"
    served_by = ("broker",)

    group_id: str = ""
    session_timeout_ms: int32 = 0
    rebalance_timeout_ms: Annotated[int32, In("1+")] = -1
    member_id: str = ""
    group_instance_id: Annotated[str | None, In("5+")] = None
    protocol_type: str = ""
    protocols: list[JoinGroupRequestProtocol] = EMPTY
    reason: Annotated[str | None, In("8+")] = None


class JoinGroupResponseMember(Struct):
    member_id: str = ""
    group_instance_id: Annotated[str | None, In("5+")] = None
    metadata: bytes = b""


class JoinGroupResponse(Message):
    api_key = 11
    versions = "0-9"
    flexible = "6+"

    throttle_time_ms: Annotated[int32, In("2+")] = 0
    error_code: int16 = 0
    generation_id: int32 = -1
    protocol_type: Annotated[str | None, In("7+")] = None
    protocol_name: Annotated[str | None, Null("7+")] = ""
    leader: str = ""
    skip_assignment: Annotated[bool, In("9+")] = False
    member_id: str = ""
    members: list[JoinGroupResponseMember] = EMPTY
