"""ApiVersions: what this broker can do; the first request of a connection."""

from typing import Annotated

from barnabas.wire.schema import EMPTY, In, Message, Struct, Tag, int16, int32, int64


class ApiVersionsRequest(Message):
    api_key = 18
    versions = "0-4"
    flexible = "3+"
    served_by = ("broker", "controller")

    client_software_name: Annotated[str, In("3+")] = ""
    client_software_version: Annotated[str, In("3+")] = ""


class ApiVersion(Struct):
    api_key: int16 = 0
    min_version: int16 = 0
    max_version: int16 = 0


class SupportedFeatureKey(Struct):
    name: str = ""
    min_version: int16 = 0
    max_version: int16 = 0


class FinalizedFeatureKey(Struct):
    name: str = ""
    max_version_level: int16 = 0
    min_version_level: int16 = 0


class ApiVersionsResponse(Message):
    api_key = 18
    versions = "0-4"
    flexible = "3+"

    error_code: int16 = 0
    api_keys: list[ApiVersion] = EMPTY
    throttle_time_ms: Annotated[int32, In("1+")] = 0
    supported_features: Annotated[list[SupportedFeatureKey], In("3+"), Tag(0)] = EMPTY
    finalized_features_epoch: Annotated[int64, In("3+"), Tag(1)] = -1
    finalized_features: Annotated[list[FinalizedFeatureKey], In("3+"), Tag(2)] = EMPTY
    zk_migration_ready: Annotated[bool, In("3+"), Tag(3)] = False
