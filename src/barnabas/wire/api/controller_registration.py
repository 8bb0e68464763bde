"""ControllerRegistration: a controller makes itself known to the active one."""

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, Message, Struct, int16, int32, uint16, uuid


class Listener(Struct):
    name: str = ""
    host: str = ""
    port: uint16 = 0
    security_protocol: int16 = 0


class Feature(Struct):
    name: str = ""
    min_supported_version: int16 = 0
    max_supported_version: int16 = 0


class ControllerRegistrationRequest(Message):
    api_key = 70
    versions = "0-0"
    flexible = "0+"
    served_by = ("controller",)

    controller_id: int32 = 0
    incarnation_id: uuid = ZERO_UUID
    zk_migration_ready: bool = False
    listeners: list[Listener] = EMPTY
    features: list[Feature] = EMPTY


class ControllerRegistrationResponse(Message):
    api_key = 70
    versions = "0-0"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
