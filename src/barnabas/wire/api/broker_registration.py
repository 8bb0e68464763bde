"""BrokerRegistration: a broker makes itself known to the controller."""

from typing import Annotated

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, In, Message, Struct, int16, int32, int64, uint16, uuid


class Listener(Struct):
    name: str = ""
    host: str = ""
    port: uint16 = 0
    security_protocol: int16 = 0


class Feature(Struct):
    name: str = ""
    min_supported_version: int16 = 0
    max_supported_version: int16 = 0


class BrokerRegistrationRequest(Message):
    api_key = 62
    versions = "0-4"
    flexible = "0+"
    served_by = ("controller",)

    broker_id: int32 = 0
    cluster_id: str = ""
    incarnation_id: uuid = ZERO_UUID
    listeners: list[Listener] = EMPTY
    features: list[Feature] = EMPTY
    rack: str | None = ""
    is_migrating_zk_broker: Annotated[bool, In("1+")] = False
    log_dirs: Annotated[list[uuid], In("2+")] = EMPTY
    previous_broker_epoch: Annotated[int64, In("3+")] = -1


class BrokerRegistrationResponse(Message):
    api_key = 62
    versions = "0-4"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    broker_epoch: int64 = -1
