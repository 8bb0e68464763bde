"""Envelope: a client's request, forwarded by a broker to the controller."""

from barnabas.wire.schema import Message, int16


class EnvelopeRequest(Message):
    api_key = 58
    versions = "0-0"
    flexible = "0+"
    served_by = ("controller",)

    request_data: bytes = b""
    request_principal: bytes | None = b""
    client_host_address: bytes = b""


class EnvelopeResponse(Message):
    api_key = 58
    versions = "0-0"
    flexible = "0+"

    response_data: bytes | None = None
    error_code: int16 = 0
