"""DescribeConfigs: settings of topics and brokers, with where each value comes from."""

from typing import Annotated

from barnabas.wire.schema import EMPTY, In, Message, Struct, int8, int16, int32


class DescribeConfigsResource(Struct):
    resource_type: int8 = 0
    resource_name: str = ""
    configuration_keys: list[str] | None = EMPTY


class DescribeConfigsRequest(Message):
    api_key = 32
    versions = "1-4"
    flexible = "4+"
    served_by = ("broker", "controller")

    resources: list[DescribeConfigsResource] = EMPTY
    include_synonyms: bool = False
    include_documentation: Annotated[bool, In("3+")] = False


class DescribeConfigsSynonym(Struct):
    name: str = ""
    value: str | None = ""
    source: int8 = 0


class DescribeConfigsResourceResult(Struct):
    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: int8 = -1
    is_sensitive: bool = False
    synonyms: list[DescribeConfigsSynonym] = EMPTY
    config_type: Annotated[int8, In("3+")] = 0
    documentation: Annotated[str | None, In("3+")] = ""


class DescribeConfigsResult(Struct):
    error_code: int16 = 0
    error_message: str | None = ""
    resource_type: int8 = 0
    resource_name: str = ""
    configs: list[DescribeConfigsResourceResult] = EMPTY


class DescribeConfigsResponse(Message):
    api_key = 32
    versions = "1-4"
    flexible = "4+"

    throttle_time_ms: int32 = 0
    results: list[DescribeConfigsResult] = EMPTY
