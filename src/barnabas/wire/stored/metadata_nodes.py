"""Records of `__cluster_metadata`: brokers and controllers."""

from typing import Annotated

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, In, Message, Struct, Tag, int8, int16, int32, int64, uint16, uuid


class BrokerRegistrationChangeRecord(Message):
    versions = "0-3"
    flexible = "0+"

    broker_id: int32 = 0
    broker_epoch: int64 = 0
    fenced: Annotated[int8, Tag(0)] = 0
    in_controlled_shutdown: Annotated[int8, In("1+"), Tag(1)] = 0
    log_dirs: Annotated[list[uuid], In("2+"), Tag(2)] = EMPTY
    cordoned_log_dirs: Annotated[list[uuid] | None, In("3+"), Tag(3)] = None


class FenceBrokerRecord(Message):
    versions = "0-0"
    flexible = "0+"

    id: int32 = 0
    epoch: int64 = 0


class BrokerEndpoint(Struct):
    name: str = ""
    host: str = ""
    port: uint16 = 0
    security_protocol: int16 = 0


class BrokerFeature(Struct):
    name: str = ""
    min_supported_version: int16 = 0
    max_supported_version: int16 = 0


class RegisterBrokerRecord(Message):
    versions = "0-4"
    flexible = "0+"

    broker_id: int32 = 0
    is_migrating_zk_broker: Annotated[bool, In("2+")] = False
    incarnation_id: uuid = ZERO_UUID
    broker_epoch: int64 = 0
    end_points: list[BrokerEndpoint] = EMPTY
    features: list[BrokerFeature] = EMPTY
    rack: str | None = ""
    fenced: bool = True
    in_controlled_shutdown: Annotated[bool, In("1+")] = False
    log_dirs: Annotated[list[uuid], In("3+"), Tag(0)] = EMPTY
    cordoned_log_dirs: Annotated[list[uuid] | None, In("4+"), Tag(1)] = None


class ControllerEndpoint(Struct):
    name: str = ""
    host: str = ""
    port: uint16 = 0
    security_protocol: int16 = 0


class ControllerFeature(Struct):
    name: str = ""
    min_supported_version: int16 = 0
    max_supported_version: int16 = 0


class RegisterControllerRecord(Message):
    versions = "0-0"
    flexible = "0+"

    controller_id: int32 = 0
    incarnation_id: uuid = ZERO_UUID
    zk_migration_ready: bool = False
    end_points: list[ControllerEndpoint] = EMPTY
    features: list[ControllerFeature] = EMPTY


class UnfenceBrokerRecord(Message):
    versions = "0-0"
    flexible = "0+"

    id: int32 = 0
    epoch: int64 = 0


class UnregisterBrokerRecord(Message):
    versions = "0-0"
    flexible = "0+"

    broker_id: int32 = 0
    broker_epoch: int64 = 0
