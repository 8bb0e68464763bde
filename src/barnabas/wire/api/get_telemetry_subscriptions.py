"""GetTelemetrySubscriptions: which metrics a client should push (KIP-714)."""

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import EMPTY, Message, int8, int16, int32, uuid


class GetTelemetrySubscriptionsRequest(Message):
    api_key = 71
    versions = "0-0"
    flexible = "0+"
    served_by = ("broker",)

    client_instance_id: uuid = ZERO_UUID


class GetTelemetrySubscriptionsResponse(Message):
    api_key = 71
    versions = "0-0"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    client_instance_id: uuid = ZERO_UUID
    subscription_id: int32 = 0
    accepted_compression_types: list[int8] = EMPTY
    push_interval_ms: int32 = 0
    telemetry_max_bytes: int32 = 0
    delta_temporality: bool = False
    requested_metrics: list[str] = EMPTY
