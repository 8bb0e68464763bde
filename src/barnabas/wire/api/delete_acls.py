"""DeleteAcls: remove the access control entries that match filters."""

from barnabas.wire.schema import EMPTY, Message, Struct, int8, int16, int32


class DeleteAclsFilter(Struct):
    resource_type_filter: int8 = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: int8 = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: int8 = 0
    permission_type: int8 = 0


class DeleteAclsRequest(Message):
    api_key = 31
    versions = "1-3"
    flexible = "2+"
    served_by = ("broker", "controller")

    filters: list[DeleteAclsFilter] = EMPTY


class DeleteAclsMatchingAcl(Struct):
    error_code: int16 = 0
    error_message: str | None = ""
    resource_type: int8 = 0
    resource_name: str = ""
    pattern_type: int8 = 3
    principal: str = ""
    host: str = ""
    operation: int8 = 0
    permission_type: int8 = 0


class DeleteAclsFilterResult(Struct):
    error_code: int16 = 0
    error_message: str | None = ""
    matching_acls: list[DeleteAclsMatchingAcl] = EMPTY


class DeleteAclsResponse(Message):
    api_key = 31
    versions = "1-3"
    flexible = "2+"

    throttle_time_ms: int32 = 0
    filter_results: list[DeleteAclsFilterResult] = EMPTY
