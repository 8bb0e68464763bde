"""CreateAcls: new access control entries."""

from barnabas.wire.schema import EMPTY, Message, Struct, int8, int16, int32


class AclCreation(Struct):
    resource_type: int8 = 0
    resource_name: str = ""
    resource_pattern_type: int8 = 3
    principal: str = ""
    host: str = ""
    operation: int8 = 0
    permission_type: int8 = 0


class CreateAclsRequest(Message):
    api_key = 30
    versions = "1-3"
    flexible = "2+"
    served_by = ("broker", "controller")

    creations: list[AclCreation] = EMPTY


class AclCreationResult(Struct):
    error_code: int16 = 0
    error_message: str | None = ""


class CreateAclsResponse(Message):
    api_key = 30
    versions = "1-3"
    flexible = "2+"

    throttle_time_ms: int32 = 0
    results: list[AclCreationResult] = EMPTY
