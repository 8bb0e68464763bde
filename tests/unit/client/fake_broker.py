"""A fake broker that answers each request as the test says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from barnabas.wire import codec, header
from barnabas.wire.api.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.wire.schema import Message

Answer = Callable[[int, int, bytes], Message | bytes | None]
"""(api key, version, body) -> a response, bytes to send as they are, or None to hang up."""


def offered(*apis: tuple[int, int, int]) -> ApiVersionsResponse:
    return ApiVersionsResponse(api_keys=[ApiVersion(*api) for api in ((18, 0, 4), *apis)])


class FakeBroker:
    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.port: int = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.asked: list[tuple[int, int]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(60)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self._serve_one(connection)

    def _serve_one(self, connection: socket.socket) -> None:
        connection.settimeout(60)
        try:
            while frame := _read_frame(connection):
                api_key, version, correlation_id, _, at = header.decode_request_header(frame, 0, len(frame))
                self.asked.append((api_key, version))
                reply = self._answer(api_key, version, frame[at:])
                if reply is None:
                    return
                if isinstance(reply, Message):
                    reply = b"".join(header.frame_response(reply, version, correlation_id))  # type: ignore[arg-type]
                connection.sendall(reply)
        except OSError:
            return


def _read_frame(connection: socket.socket) -> bytes:
    size = int.from_bytes(_read(connection, 4), "big")
    return _read(connection, size) if size else b""


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            return b""
        data += piece
    return data


def refused_versions(correlation_id: int) -> bytes:
    """What a broker says to a version of ApiVersions that it does not know: error 35 in the form of version 0."""
    body = codec.encode_bytes(ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(18, 0, 2)]), 0)
    return (len(body) + 4).to_bytes(4, "big") + correlation_id.to_bytes(4, "big") + body
