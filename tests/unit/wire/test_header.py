"""Headers and frames."""

import pytest

from barnabas.wire import codec, header
from barnabas.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.api.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.wire.api.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.api.produce import ProduceRequest
from barnabas.wire.schema import DecodeError
from tests.fuzz.messages import golden


@pytest.mark.parametrize(("version", "header_version"), [(8, 1), (9, 2)])
@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "größer"])
def test_a_request_frame(version: int, header_version: int, client_id: str | None) -> None:
    request = MetadataRequest(topics=None)
    frame = b"".join(header.frame_request(request, version, 77, client_id))  # type: ignore[arg-type]
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert header.request_header_version(MetadataRequest, version) == header_version
    *head, start = header.decode_request_header(frame, 4, len(frame))
    assert head == [3, version, 77, client_id]
    assert codec.decode(MetadataRequest, version, frame, start) == (request, len(frame))
    for end in range(4, start):
        with pytest.raises(DecodeError):
            header.decode_request_header(frame, 4, end)
        with pytest.raises(DecodeError):
            header.decode_request_header(frame[:end], 4, end)


def test_kafkas_request_headers() -> None:
    for row in golden():
        if row.name == "RequestHeader":
            message, end = codec.decode(header.RequestHeader, row.version, row.raw)
            assert end == len(row.raw)
            assert codec.encode_bytes(message, row.version) == row.raw


def test_tagged_fields_of_a_request_header_are_skipped() -> None:
    raw = b"\x00\x03\x00\x09\x00\x00\x00\x01\xff\xff" + b"\x01\x05\x02ab"
    assert header.decode_request_header(raw, 0, len(raw)) == (3, 9, 1, None, len(raw))


def test_an_unknown_api_has_an_old_header() -> None:
    raw = b"\x7f\xff\x00\x09\x00\x00\x00\x01\xff\xff"
    assert header.decode_request_header(raw, 0, len(raw)) == (32767, 9, 1, None, 10)


def test_a_version_that_is_too_new_has_a_flexible_header() -> None:
    raw = b"\x00\x12\x00\x63\x00\x00\x00\x01\xff\xff\x00"
    assert header.decode_request_header(raw, 0, len(raw)) == (18, 99, 1, None, 11)


def test_api_versions_is_answered_with_an_old_header() -> None:
    assert header.request_header_version(ApiVersionsRequest, 3) == 2
    assert header.response_header_version(ApiVersionsResponse, 3) == 0
    assert header.response_header_version(MetadataResponse, 9) == 1
    assert header.response_header_version(MetadataResponse, 8) == 0


@pytest.mark.parametrize("version", [8, 9])
def test_a_response_frame(version: int) -> None:
    response = MetadataResponse(cluster_id="c")
    frame = b"".join(header.frame_response(response, version, 77))  # type: ignore[arg-type]
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    kind = header.response_header_version(MetadataResponse, version)
    correlation_id, start = header.decode_response_header(frame, 4, len(frame), kind)
    assert correlation_id == 77
    assert codec.decode(MetadataResponse, version, frame, start) == (response, len(frame))
    with pytest.raises(DecodeError):
        header.decode_response_header(frame, 4, 6, kind)
    with pytest.raises(DecodeError):
        header.decode_response_header(frame[:6], 4, 6, kind)


def test_a_response_frame_keeps_large_records_apart() -> None:
    records = memoryview(bytes(10_000))
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(records=records)])])
    chunks = header.frame_response(response, 12, 1)
    assert chunks[1] is records
    assert int.from_bytes(bytes(chunks[0][:4]), "big") == codec.size(chunks) - 4  # type: ignore[index]


def test_a_beginning_knows_its_like() -> None:
    def head(version: int = 9, correlation_id: int = 1, client_id: str | None = "me") -> bytes:
        request = ProduceRequest(None, 1, 1000, [])
        return b"".join(header.frame_request(request, version, correlation_id, client_id))[4:]

    known = head()
    body = header.decode_request_header(known, 0, len(known))[-1]
    beginning = header.Beginning(known, 0, body)
    assert beginning.correlation_id(b"xx" + head(correlation_id=-7), 2) == -7
    for other in (head(version=8), head(client_id="you"), head(client_id=None), head(client_id="longer")):
        assert beginning.correlation_id(other, 0) is None
