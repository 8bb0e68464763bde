"""DescribeGroups: classic groups and their members."""

from typing import Annotated

from barnabas.wire.schema import EMPTY, In, Message, Struct, Tag, int16, int32, int64


class DescribeGroupsRequest(Message):
    api_key = 15
    versions = "0-6"
    flexible = "5+"
    served_by = ("broker",)

    groups: list[str] = EMPTY
    include_authorized_operations: Annotated[bool, In("3+")] = False


class DescribedGroupMember(Struct):
    member_id: str = ""
    group_instance_id: Annotated[str | None, In("4+")] = None
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""


class DescribedRebalance(Struct):
    """One of the last rebalances; ours, and skipped as an unknown tagged field by others."""

    timestamp_ms: int64 = 0
    generation: int32 = -1
    member_count: int32 = 0
    cause: str = ""


class DescribedGroup(Struct):
    error_code: int16 = 0
    error_message: Annotated[str | None, In("6+")] = None
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: list[DescribedGroupMember] = EMPTY
    authorized_operations: Annotated[int32, In("3+")] = -(1 << 31)
    rebalances: Annotated[list[DescribedRebalance], In("5+"), Tag(10_000)] = EMPTY


class DescribeGroupsResponse(Message):
    api_key = 15
    versions = "0-6"
    flexible = "5+"

    throttle_time_ms: Annotated[int32, In("1+")] = 0
    groups: list[DescribedGroup] = EMPTY
