"""ExpireDelegationToken: end a token's life, now or later."""

from barnabas.wire.schema import Message, int16, int32, int64


class ExpireDelegationTokenRequest(Message):
    api_key = 40
    versions = "1-2"
    flexible = "2+"
    served_by = ("broker", "controller")

    hmac: bytes = b""
    expiry_time_period_ms: int64 = 0


class ExpireDelegationTokenResponse(Message):
    api_key = 40
    versions = "1-2"
    flexible = "2+"

    error_code: int16 = 0
    expiry_timestamp_ms: int64 = 0
    throttle_time_ms: int32 = 0
