"""IncrementalAlterConfigs: set, delete, append to or subtract from single settings."""

from barnabas.wire.schema import EMPTY, Message, Struct, int8, int16, int32


class AlterableConfig(Struct):
    name: str = ""
    config_operation: int8 = 0
    value: str | None = ""


class AlterConfigsResource(Struct):
    resource_type: int8 = 0
    resource_name: str = ""
    configs: list[AlterableConfig] = EMPTY


class IncrementalAlterConfigsRequest(Message):
    api_key = 44
    versions = "0-1"
    flexible = "1+"
    served_by = ("broker", "controller")

    resources: list[AlterConfigsResource] = EMPTY
    validate_only: bool = False


class AlterConfigsResourceResponse(Struct):
    error_code: int16 = 0
    error_message: str | None = ""
    resource_type: int8 = 0
    resource_name: str = ""


class IncrementalAlterConfigsResponse(Message):
    api_key = 44
    versions = "0-1"
    flexible = "1+"

    throttle_time_ms: int32 = 0
    responses: list[AlterConfigsResourceResponse] = EMPTY
