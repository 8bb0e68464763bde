"""SyncGroup: the leader hands in the assignment, and every member is told its part."""

from typing import Annotated

from barnabas.wire.schema import EMPTY, In, Message, Struct, int16, int32


class SyncGroupRequestAssignment(Struct):
    member_id: str = ""
    assignment: bytes = b""


class SyncGroupRequest(Message):
    api_key = 14
    versions = "0-5"
    flexible = "4+"
    served_by = ("broker",)

    group_id: str = ""
    generation_id: int32 = 0
    member_id: str = ""
    group_instance_id: Annotated[str | None, In("3+")] = None
    protocol_type: Annotated[str | None, In("5+")] = None
    protocol_name: Annotated[str | None, In("5+")] = None
    assignments: list[SyncGroupRequestAssignment] = EMPTY


class SyncGroupResponse(Message):
    api_key = 14
    versions = "0-5"
    flexible = "4+"

    throttle_time_ms: Annotated[int32, In("1+")] = 0
    error_code: int16 = 0
    protocol_type: Annotated[str | None, In("5+")] = None
    protocol_name: Annotated[str | None, In("5+")] = None
    assignment: bytes = b""
