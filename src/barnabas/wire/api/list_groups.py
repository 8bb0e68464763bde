"""ListGroups: the groups that a broker coordinates."""

from typing import Annotated

from barnabas.wire.schema import EMPTY, In, Message, Struct, int16, int32


class ListGroupsRequest(Message):
    api_key = 16
    versions = "0-5"
    flexible = "3+"
    served_by = ("broker",)

    states_filter: Annotated[list[str], In("4+")] = EMPTY
    types_filter: Annotated[list[str], In("5+")] = EMPTY


class ListedGroup(Struct):
    group_id: str = ""
    protocol_type: str = ""
    group_state: Annotated[str, In("4+")] = ""
    group_type: Annotated[str, In("5+")] = ""


class ListGroupsResponse(Message):
    api_key = 16
    versions = "0-5"
    flexible = "3+"

    throttle_time_ms: Annotated[int32, In("1+")] = 0
    error_code: int16 = 0
    groups: list[ListedGroup] = EMPTY
