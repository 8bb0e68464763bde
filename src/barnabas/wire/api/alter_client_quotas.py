"""AlterClientQuotas: set and remove quotas."""

from barnabas.wire.schema import EMPTY, Message, Struct, int16, int32


class EntityData(Struct):
    entity_type: str = ""
    entity_name: str | None = ""


class OpData(Struct):
    key: str = ""
    value: float = 0.0
    remove: bool = False


class AlterClientQuotasRequestEntryData(Struct):
    entity: list[EntityData] = EMPTY
    ops: list[OpData] = EMPTY


class AlterClientQuotasRequest(Message):
    api_key = 49
    versions = "0-1"
    flexible = "1+"
    served_by = ("broker", "controller")

    entries: list[AlterClientQuotasRequestEntryData] = EMPTY
    validate_only: bool = False


class AlterClientQuotasResponseEntryData(Struct):
    error_code: int16 = 0
    error_message: str | None = ""
    entity: list[EntityData] = EMPTY


class AlterClientQuotasResponse(Message):
    api_key = 49
    versions = "0-1"
    flexible = "1+"

    throttle_time_ms: int32 = 0
    entries: list[AlterClientQuotasResponseEntryData] = EMPTY
