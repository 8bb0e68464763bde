"""PushTelemetry: a client's metrics (KIP-714)."""

from barnabas.model.ids import ZERO_UUID
from barnabas.wire.schema import Message, int8, int16, int32, uuid


class PushTelemetryRequest(Message):
    api_key = 72
    versions = "0-0"
    flexible = "0+"
    served_by = ("broker",)

    client_instance_id: uuid = ZERO_UUID
    subscription_id: int32 = 0
    terminating: bool = False
    compression_type: int8 = 0
    metrics: bytes = b""


class PushTelemetryResponse(Message):
    api_key = 72
    versions = "0-0"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
