"""The headers of requests and responses, and the frame around them.

A frame is a size of four bytes, a header and a body. The header's version follows from the API and the
version of the body: flexible bodies have flexible headers.
"""

import struct
from typing import Annotated

from barnabas.wire import catalogue, codec
from barnabas.wire.decoders import skip_tags
from barnabas.wire.encoders import JOINED_RECORDS_BYTES
from barnabas.wire.schema import (
    NO_VERSIONS,
    Buffer,
    Chunk,
    Classic,
    DecodeError,
    Message,
    Versions,
    int16,
    int32,
    is_flexible,
    parse_versions,
)

API_VERSIONS_KEY = 18

_request_head = struct.Struct(">hhih").unpack_from
_correlation_id = struct.Struct(">i").unpack_from
_plain_frame = struct.Struct(">ii").pack
_flexible_frame = struct.Struct(">iix").pack

_flexible_versions: dict[int, Versions] = {}
_response_headers: dict[tuple[type[Message], int], int] = {}


class RequestHeader(Message):
    versions = "1-2"
    flexible = "2+"

    request_api_key: int16 = 0
    request_api_version: int16 = 0
    correlation_id: int32 = 0
    client_id: Annotated[str | None, Classic()] = ""


class ResponseHeader(Message):
    versions = "0-1"
    flexible = "1+"

    correlation_id: int32 = 0


def request_header_version(request: type[Message], version: int) -> int:
    return 2 if is_flexible(request, version) else 1


def response_header_version(response: type[Message], version: int) -> int:
    """ApiVersions is answered with header 0 always: the client does not know our versions yet (KIP-511)."""
    found = _response_headers.get((response, version))
    if found is None:
        found = int(is_flexible(response, version) and response.api_key != API_VERSIONS_KEY)
        _response_headers[response, version] = found
    return found


def decode_request_header(buffer: Buffer, offset: int, end: int) -> tuple[int, int, int, str | None, int]:
    """(api_key, version, correlation_id, client_id, where the body starts). Raises DecodeError only.

    Of an API that we do not know, the body's start is that of an old header: it cannot be answered anyway.
    """
    try:
        api_key, version, correlation_id, length = _request_head(buffer, offset)
        offset += 10
        client_id = None
        if length >= 0:
            start, offset = offset, offset + length
            if offset > end:
                raise DecodeError("request header: the client id is cut off")
            client_id = str(buffer[start:offset], "utf-8", "replace")  # as Kafka does: a name, and not worth a refusal
        first, last = _flexible_versions.get(api_key) or _look_up_flexible(api_key)
        if first <= version <= last:
            tags = buffer[offset]
            offset += 1
            if tags:
                offset = skip_tags(buffer, offset, tags, end)
    except (struct.error, IndexError) as error:
        raise DecodeError(f"request header: {error}") from error
    if offset > end:
        raise DecodeError("request header: cut off")
    return api_key, version, correlation_id, client_id, offset


class Beginning:
    """What a request begins with, all but the correlation id: API, version and client id.

    A client's requests for data begin alike, so the last one tells what the next one is: one unpacking and two
    comparisons, where reading the header and looking up what it names takes several times that.
    """

    __slots__ = ("_api_and_version", "_rest", "_unpack")

    def __init__(self, buffer: Buffer, start: int, body: int) -> None:
        """The header is between ``start`` and ``body``."""
        self._unpack = struct.Struct(f">4si{body - start - 8}s").unpack_from
        self._api_and_version, _, self._rest = self._unpack(buffer, start)

    def correlation_id(self, buffer: Buffer, start: int) -> int | None:
        """Of the request at ``start``, at least as long as the header; None where it begins otherwise."""
        found: int
        api_and_version, found, rest = self._unpack(buffer, start)
        return found if api_and_version == self._api_and_version and rest == self._rest else None


def _look_up_flexible(api_key: int) -> Versions:
    try:
        request, _ = catalogue.api_classes(api_key)
    except KeyError:
        return NO_VERSIONS
    found = _flexible_versions[api_key] = parse_versions(request.flexible)
    return found


def decode_response_header(buffer: Buffer, offset: int, end: int, header_version: int) -> tuple[int, int]:
    """(correlation_id, where the body starts). Raises DecodeError only."""
    try:
        (correlation_id,) = _correlation_id(buffer, offset)
        offset += 4
        if header_version:
            tags = buffer[offset]
            offset += 1
            if tags:
                offset = skip_tags(buffer, offset, tags, end)
    except (struct.error, IndexError) as error:
        raise DecodeError(f"response header: {error}") from error
    if offset > end:
        raise DecodeError("response header: cut off")
    return correlation_id, offset


def frame_response(response: Message, version: int, correlation_id: int) -> list[Chunk]:
    """A response as it goes to the socket: size, header, body."""
    cls = type(response)
    header_version = _response_headers.get((cls, version))
    if header_version is None:
        header_version = response_header_version(cls, version)
    body = codec.writer(cls, version)(response)
    if len(body) == 1 and isinstance(first := body[0], bytes) and len(first) <= JOINED_RECORDS_BYTES:
        # Nearly every response is one small piece.
        if header_version:
            body[0] = _flexible_frame(len(first) + 5, correlation_id) + first
        else:
            body[0] = _plain_frame(len(first) + 4, correlation_id) + first
        return body
    return frame_body(body, correlation_id, header_version)


def frame_body(body: list[Chunk], correlation_id: int, header_version: int) -> list[Chunk]:
    """Puts size and response header before an encoded body. The list is changed and returned."""
    if header_version:
        start = _flexible_frame(codec.size(body) + 5, correlation_id)
    else:
        start = _plain_frame(codec.size(body) + 4, correlation_id)
    return _prefixed(start, body)


def frame_request(request: Message, version: int, correlation_id: int, client_id: str | None) -> list[Chunk]:
    """A request as it goes to the socket: size, header, body."""
    header = RequestHeader(request.api_key, version, correlation_id, client_id)
    start = codec.encode_bytes(header, request_header_version(type(request), version))
    body = codec.encode(request, version)
    return _prefixed((len(start) + codec.size(body)).to_bytes(4, "big") + start, body)


def _prefixed(start: bytes, body: list[Chunk]) -> list[Chunk]:
    """Small first chunks are joined with what goes before them, to save the socket a piece."""
    first = body[0]
    if isinstance(first, bytes) and len(first) <= JOINED_RECORDS_BYTES:
        body[0] = start + first
    else:
        body.insert(0, start)
    return body
