"""Heartbeat: a member of a classic group is alive."""

from typing import Annotated

from barnabas.wire.schema import In, Message, int16, int32


class HeartbeatRequest(Message):
    api_key = 12
    versions = "0-4"
    flexible = "4+"
    served_by = ("broker",)

    group_id: str = ""
    generation_id: int32 = 0
    member_id: str = ""
    group_instance_id: Annotated[str | None, In("3+")] = None


class HeartbeatResponse(Message):
    api_key = 12
    versions = "0-4"
    flexible = "4+"

    throttle_time_ms: Annotated[int32, In("1+")] = 0
    error_code: int16 = 0
