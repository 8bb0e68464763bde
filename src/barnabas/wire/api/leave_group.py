"""LeaveGroup: members leave a classic group."""

from typing import Annotated

from barnabas.wire.schema import EMPTY, In, Message, Struct, int16, int32


class MemberIdentity(Struct):
    member_id: str = ""
    group_instance_id: str | None = None
    reason: Annotated[str | None, In("5+")] = None


class LeaveGroupRequest(Message):
    api_key = 13
    versions = "0-5"
    flexible = "4+"
    served_by = ("broker",)

    group_id: str = ""
    member_id: Annotated[str, In("0-2")] = ""
    members: Annotated[list[MemberIdentity], In("3+")] = EMPTY


class MemberResponse(Struct):
    member_id: str = ""
    group_instance_id: str | None = ""
    error_code: int16 = 0


class LeaveGroupResponse(Message):
    api_key = 13
    versions = "0-5"
    flexible = "4+"

    throttle_time_ms: Annotated[int32, In("1+")] = 0
    error_code: int16 = 0
    members: Annotated[list[MemberResponse], In("3+")] = EMPTY
