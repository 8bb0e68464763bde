"""DescribeAcls: the access control entries that match a filter."""

from barnabas.wire.schema import EMPTY, Message, Struct, int8, int16, int32


class DescribeAclsRequest(Message):
    api_key = 29
    versions = "1-3"
    flexible = "2+"
    served_by = ("broker", "controller")

    resource_type_filter: int8 = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: int8 = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: int8 = 0
    permission_type: int8 = 0


class AclDescription(Struct):
    principal: str = ""
    host: str = ""
    operation: int8 = 0
    permission_type: int8 = 0


class DescribeAclsResource(Struct):
    resource_type: int8 = 0
    resource_name: str = ""
    pattern_type: int8 = 3
    acls: list[AclDescription] = EMPTY


class DescribeAclsResponse(Message):
    api_key = 29
    versions = "1-3"
    flexible = "2+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    resources: list[DescribeAclsResource] = EMPTY
