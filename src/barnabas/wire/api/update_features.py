"""UpdateFeatures: finalize feature levels."""

from typing import Annotated

from barnabas.wire.schema import EMPTY, In, Message, Struct, int8, int16, int32


class FeatureUpdateKey(Struct):
    feature: str = ""
    max_version_level: int16 = 0
    allow_downgrade: Annotated[bool, In("0")] = False
    upgrade_type: Annotated[int8, In("1+")] = 1


class UpdateFeaturesRequest(Message):
    api_key = 57
    versions = "0-2"
    flexible = "0+"
    served_by = ("broker", "controller")

    timeout_ms: int32 = 60000
    feature_updates: list[FeatureUpdateKey] = EMPTY
    validate_only: Annotated[bool, In("1+")] = False


class UpdatableFeatureResult(Struct):
    feature: str = ""
    error_code: int16 = 0
    error_message: str | None = ""


class UpdateFeaturesResponse(Message):
    api_key = 57
    versions = "0-2"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    results: Annotated[list[UpdatableFeatureResult], In("0-1")] = EMPTY
