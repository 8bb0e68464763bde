"""UnregisterBroker: forget a broker."""

from barnabas.wire.schema import Message, int16, int32


class UnregisterBrokerRequest(Message):
    api_key = 64
    versions = "0-0"
    flexible = "0+"
    served_by = ("broker", "controller")

    broker_id: int32 = 0


class UnregisterBrokerResponse(Message):
    api_key = 64
    versions = "0-0"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
