"""ListConfigResources: resources that have settings."""

from typing import Annotated

from barnabas.wire.schema import EMPTY, In, Message, Struct, int8, int16, int32


class ListConfigResourcesRequest(Message):
    api_key = 74
    versions = "0-1"
    flexible = "0+"
    served_by = ("broker",)

    resource_types: Annotated[list[int8], In("1+")] = EMPTY


class ConfigResource(Struct):
    resource_name: str = ""
    resource_type: Annotated[int8, In("1+")] = 16


class ListConfigResourcesResponse(Message):
    api_key = 74
    versions = "0-1"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    config_resources: list[ConfigResource] = EMPTY
