"""Abuse by bytes: wrong frame sizes, malformed requests, other protocols."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.apis import SERVED
from barnabas.wire import codec, header
from barnabas.wire.api.api_versions import ApiVersionsResponse
from barnabas.wire.api.metadata import MetadataRequest, MetadataResponse
from tests.integration.abuse import unharmed
from tests.reliability.process import BrokerProcess
from tests.reliability.raw import Raw, batch, frame, produce_request


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("data")) as process:
        yield process


def request(key: int, version: int, body: bytes, *, flexible: bool) -> bytes:
    whole = struct.pack(">hhih", key, version, 7, -1) + (b"\x00" if flexible else b"") + body
    return struct.pack(">i", len(whole)) + whole


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


MILLION_TAGS = b"".join(varint(number) + b"\x00" for number in range(1_000_000))
CLOSED = {
    "frame of -1 bytes": struct.pack(">i", -1),
    "frame of 0 bytes": struct.pack(">i", 0),
    "frame of 2^31-1 bytes": struct.pack(">i", 2**31 - 1) + b"x" * 1000,
    "frame above socket.request.max.bytes": struct.pack(">i", 104857601),
    "frame of one byte": struct.pack(">i", 1) + b"x",
    "header cut off in the client id": struct.pack(">ihhih", 10, 3, 1, 1, 500),
    "request other than Produce above 8 MB": struct.pack(">ihhih", 9 << 20, 3, 1, 1, -1) + b"x" * 4096,
    "array of 2^31-1 elements": request(3, 1, struct.pack(">i", 2**31 - 1) + b"\0\1a", flexible=False),
    "null where an array must be": request(19, 2, struct.pack(">iib", -1, 1000, 0), flexible=False),
    "compact array of 2^31 elements": request(3, 12, varint(2**31) + b"\0" * 20, flexible=True),
    "array a little too long": request(3, 1, struct.pack(">i", 1001) + b"\0\1a" * 1000, flexible=False),
    "million tagged fields that are none": request(18, 3, b"\2a\2b" + varint(1_000_000) + b"\xff" * 99, flexible=True),
    "varint of ten bytes": request(3, 12, b"\xff" * 9 + b"\x01", flexible=True),
    "varint without an end": request(3, 12, b"\x80" * 100, flexible=True),
    "string longer than the frame": request(3, 1, struct.pack(">ih", 1, 30000) + b"a", flexible=False),
    "string that is not UTF-8": request(3, 1, struct.pack(">ih", 1, 2) + b"\xff\xfe", flexible=False),
    "unknown API": request(999, 0, b"", flexible=False),
    "negative API": request(-1, 0, b"", flexible=False),
    "API of the cluster only": request(52, 0, b"", flexible=True),
    "Metadata version 99": request(3, 99, b"", flexible=False),
    "Metadata version -1": request(3, -1, b"", flexible=False),
    "Produce version 2": request(0, 2, struct.pack(">hii", 1, 1000, 0), flexible=False),
    "Produce version 0": request(0, 0, struct.pack(">hii", 1, 1000, 0), flexible=False),
    "TLS client hello": bytes.fromhex("16030100f8010000f40303") + bytes(range(200)),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
}


@pytest.mark.parametrize("name", CLOSED)
def test_the_connection_is_closed(broker: BrokerProcess, name: str) -> None:
    with unharmed(broker), Raw(broker.port) as attacker:
        attacker.send_bytes(CLOSED[name])
        assert attacker.is_closed(), name


def test_a_large_produce_is_only_buffered_as_it_comes(broker: BrokerProcess) -> None:
    with unharmed(broker):
        attackers = [Raw(broker.port) for _ in range(50)]
        for attacker in attackers:
            attacker.send_bytes(struct.pack(">ihhih", 100 << 20, 0, 9, 1, -1) + b"x" * 1000)
        with Raw(broker.port) as other:
            other.versions()
        for attacker in attackers:
            attacker.close()


def test_a_million_tagged_fields(broker: BrokerProcess) -> None:
    with unharmed(broker), Raw(broker.port) as attacker:
        attacker.send_bytes(request(18, 3, b"\2a\2b" + varint(1_000_000) + MILLION_TAGS, flexible=True))
        assert attacker.is_closed()


def test_a_request_within_8_mb_that_is_all_topics_leaves_no_memory_behind(broker: BrokerProcess) -> None:
    names = [f"{number:x}" for number in range(300_000)]
    body = struct.pack(">i", len(names)) + b"".join(struct.pack(">h", len(name)) + name.encode() for name in names)
    with unharmed(broker), Raw(broker.port) as attacker:
        attacker.send_bytes(request(3, 4, body + b"\0", flexible=False))
        attacker.receive_frame()


def test_a_topic_named_a_million_times_is_described_once(broker: BrokerProcess) -> None:
    with Raw(broker.port) as client:
        client.create("wide", 500)
    body = struct.pack(">i", 1_000_000) + b"\0\4wide" * 1_000_000
    with unharmed(broker), Raw(broker.port) as attacker:
        attacker.send_bytes(request(3, 4, body + b"\0", flexible=False))
        reply = attacker.receive_frame()
        assert len(codec.decode(MetadataResponse, 4, reply, 4)[0].topics) == 1


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(broker: BrokerProcess, version: int) -> None:
    with unharmed(broker), Raw(broker.port) as client:
        client.send_bytes(request(18, version, b"\2a\2b\0", flexible=True))
        reply = client.receive_frame()
        correlation_id, at = header.decode_response_header(reply, 0, len(reply), 0)
        answer, end = codec.decode(ApiVersionsResponse, 0, reply, at)
        assert (correlation_id, answer.error_code, end) == (7, 35, len(reply))
        assert [(one.api_key, one.min_version, one.max_version) for one in answer.api_keys] == [(18, 0, 4)]
        assert client.versions().error_code == 0  # the connection goes on


def test_only_what_is_served_is_advertised(broker: BrokerProcess) -> None:
    with Raw(broker.port) as client:
        offered = {one.api_key: (one.min_version, one.max_version) for one in client.versions().api_keys}
    assert offered == {api.key: (api.lowest_advertised, api.max_version) for api in SERVED}


def test_what_is_left_of_a_refused_frame_is_not_read_as_another(broker: BrokerProcess) -> None:
    """A second, valid request behind a refused one is never answered."""
    with unharmed(broker), Raw(broker.port) as attacker:
        attacker.send_bytes(CLOSED["unknown API"] + frame(MetadataRequest(topics=None), 1))
        assert attacker.is_closed()


def test_bytes_behind_the_body_of_a_request_do_no_harm(broker: BrokerProcess) -> None:
    with unharmed(broker), Raw(broker.port) as client:
        whole = frame(MetadataRequest(topics=[]), 1)[4:] + b"junk" * 100
        client.send_bytes(struct.pack(">i", len(whole)) + whole)
        client.receive(MetadataResponse, 1)


def test_frames_arrive_in_any_pieces(broker: BrokerProcess) -> None:
    with Raw(broker.port) as client:
        client.create("pieces")
        data = b"".join(frame(produce_request("pieces", batch(b"v" * size)), 9, size) for size in (1, 500, 300_000, 2))
        for size in (1, 3, 7, 100, 5000):
            client.send_bytes(data[:size])
            data = data[size:]
        client.send_bytes(data)
        assert [struct.unpack(">i", client.receive_frame()[:4])[0] for _ in range(4)] == [1, 500, 300_000, 2]


def test_nothing_was_written_beside_the_data(broker: BrokerProcess) -> None:
    assert Path(str(broker.data)).is_dir()
