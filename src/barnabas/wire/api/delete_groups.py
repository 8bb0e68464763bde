"""DeleteGroups: remove empty groups and their offsets."""

from barnabas.wire.schema import EMPTY, Message, Struct, int16, int32


class DeleteGroupsRequest(Message):
    api_key = 42
    versions = "0-2"
    flexible = "2+"
    served_by = ("broker",)

    groups_names: list[str] = EMPTY


class DeletableGroupResult(Struct):
    group_id: str = ""
    error_code: int16 = 0


class DeleteGroupsResponse(Message):
    api_key = 42
    versions = "0-2"
    flexible = "2+"

    throttle_time_ms: int32 = 0
    results: list[DeletableGroupResult] = EMPTY
