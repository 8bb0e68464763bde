"""RenewDelegationToken: let a token live longer."""

from barnabas.wire.schema import Message, int16, int32, int64


class RenewDelegationTokenRequest(Message):
    api_key = 39
    versions = "1-2"
    flexible = "2+"
    served_by = ("broker", "controller")

    hmac: bytes = b""
    renew_period_ms: int64 = 0


class RenewDelegationTokenResponse(Message):
    api_key = 39
    versions = "1-2"
    flexible = "2+"

    error_code: int16 = 0
    expiry_timestamp_ms: int64 = 0
    throttle_time_ms: int32 = 0
