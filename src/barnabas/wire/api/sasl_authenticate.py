"""SaslAuthenticate: one step of the log-in exchange."""

from typing import Annotated

from barnabas.wire.schema import In, Message, int16, int64


class SaslAuthenticateRequest(Message):
    api_key = 36
    versions = "0-2"
    flexible = "2+"
    served_by = ("broker", "controller")

    auth_bytes: bytes = b""


class SaslAuthenticateResponse(Message):
    api_key = 36
    versions = "0-2"
    flexible = "2+"

    error_code: int16 = 0
    error_message: str | None = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: Annotated[int64, In("1+")] = 0
