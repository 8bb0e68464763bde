"""DescribeClientQuotas: the quotas that match entities."""

from barnabas.wire.schema import EMPTY, Message, Struct, int8, int16, int32


class ComponentData(Struct):
    entity_type: str = ""
    match_type: int8 = 0
    match: str | None = ""


class DescribeClientQuotasRequest(Message):
    api_key = 48
    versions = "0-1"
    flexible = "1+"
    served_by = ("broker",)

    components: list[ComponentData] = EMPTY
    strict: bool = False


class EntityData(Struct):
    entity_type: str = ""
    entity_name: str | None = ""


class ValueData(Struct):
    key: str = ""
    value: float = 0.0


class EntryData(Struct):
    entity: list[EntityData] = EMPTY
    values: list[ValueData] = EMPTY


class DescribeClientQuotasResponse(Message):
    api_key = 48
    versions = "0-1"
    flexible = "1+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    entries: list[EntryData] | None = EMPTY
