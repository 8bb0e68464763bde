"""AlterConfigs: replace all settings of a resource."""

from barnabas.wire.schema import EMPTY, Message, Struct, int8, int16, int32


class AlterableConfig(Struct):
    name: str = ""
    value: str | None = ""


class AlterConfigsResource(Struct):
    resource_type: int8 = 0
    resource_name: str = ""
    configs: list[AlterableConfig] = EMPTY


class AlterConfigsRequest(Message):
    api_key = 33
    versions = "0-2"
    flexible = "2+"
    served_by = ("broker", "controller")

    resources: list[AlterConfigsResource] = EMPTY
    validate_only: bool = False


class AlterConfigsResourceResponse(Struct):
    error_code: int16 = 0
    error_message: str | None = ""
    resource_type: int8 = 0
    resource_name: str = ""


class AlterConfigsResponse(Message):
    api_key = 33
    versions = "0-2"
    flexible = "2+"

    throttle_time_ms: int32 = 0
    responses: list[AlterConfigsResourceResponse] = EMPTY
