"""SaslHandshake: which mechanism to log in by."""

from barnabas.wire.schema import EMPTY, Message, int16


class SaslHandshakeRequest(Message):
    api_key = 17
    versions = "0-1"
    served_by = ("broker", "controller")

    mechanism: str = ""


class SaslHandshakeResponse(Message):
    api_key = 17
    versions = "0-1"

    error_code: int16 = 0
    mechanisms: list[str] = EMPTY
