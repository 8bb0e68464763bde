"""The fast path of Produce gives the same replies, byte for byte, and the same log as the whole pipeline.

The first request of a connection always goes the ordinary way, so a connection per request is the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.model.errors import ErrorCode
from barnabas.testing import EmbeddedBroker
from barnabas.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.checksum import crc32c
from barnabas.wire.compression import Codec
from tests.reliability.raw import Raw, batch, frame, produce_request

VERSIONS = (7, 8, 9, 12, 13)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(data="temporary") as running:
        yield running


def topic_id(raw: Raw, topic: str) -> bytes:
    return bytes(raw.call(MetadataRequest([MetadataRequestTopic(name=topic)]), MetadataResponse, 12).topics[0].topic_id)


def request_for(raw: Raw, topic: str, records: bytes, acks: int = 1) -> ProduceRequest:
    data = [TopicProduceData(topic, topic_id(raw, topic), [PartitionProduceData(0, records)])]
    return ProduceRequest(None, acks, 30_000, data)


def known_prefixes(broker: EmbeddedBroker) -> int:
    assert broker._server is not None
    sessions = [connection._session for connection in broker._server.limits.open]
    paths = [session._familiar.fast_path for session in sessions if session._familiar is not None]
    return sum(len(path._known) for path in paths if path is not None)


def bad_checksum() -> bytes:
    data = bytearray(batch())
    data[17] ^= 1
    return bytes(data)


def lying_count() -> bytes:
    data = bytearray(batch(b"a", b"b"))
    data[57:61] = (3).to_bytes(4)
    data[17:21] = crc32c(data[21:]).to_bytes(4)
    return bytes(data)


SENT: list[bytes] = [
    batch(),
    batch(b"x" * 200, b"y"),
    bad_checksum(),
    batch(b"z" * 5000, codec=Codec.LZ4),
    lying_count(),
    batch(producer_id=77, producer_epoch=0, base_sequence=0),
    batch(producer_id=77, producer_epoch=0, base_sequence=1),
    batch(producer_id=77, producer_epoch=0, base_sequence=1),  # a repetition
    batch(producer_id=77, producer_epoch=0, base_sequence=9),  # a gap
    b"\x00" * 61,
    batch() + batch(),
    batch()[:-1],
    batch(b"q" * 2_000_000),
    batch(b"last"),
]


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", VERSIONS)
def test_replies_and_logs_are_the_same(
    broker: EmbeddedBroker, new_topic: Callable[[], str], version: int, acks: int
) -> None:
    known, ordinary = new_topic(), new_topic()
    assert len(known) == len(ordinary)
    with Raw(broker.port) as raw:
        raw.create(known)
        raw.create(ordinary)
        replies = []
        before = known_prefixes(broker)
        for records in SENT:
            raw.send_bytes(frame(request_for(raw, known, records, acks), version, 5))
            replies.append(raw.receive_frame())
        assert known_prefixes(broker) == before + 1
        for records, reply in zip(SENT, replies, strict=True):
            request = request_for(raw, ordinary, records, acks)
            with Raw(broker.port) as fresh:
                fresh.send_bytes(frame(request, version, 5))
                expected = fresh.receive_frame()
            expected = expected.replace(ordinary.encode(), known.encode())
            assert reply == expected.replace(topic_id(raw, ordinary), topic_id(raw, known))
        assert bytes(raw.fetch(known).records) == bytes(raw.fetch(ordinary).records)  # type: ignore[arg-type]


def test_many_in_one_piece_are_answered_in_order(broker: EmbeddedBroker, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    with Raw(broker.port) as raw:
        raw.create(topic)
        raw.send_bytes(b"".join(frame(produce_request(topic, batch()), 9, number) for number in range(500)))
        replies = [raw.receive_frame() for _ in range(500)]
        assert [int.from_bytes(reply[:4]) for reply in replies] == list(range(500))
        assert raw.fetch(topic).high_watermark == 500


def test_behind_a_parked_request(broker: EmbeddedBroker, new_topic: Callable[[], str]) -> None:
    """A reply of the fast path does not overtake one that waits for a flush."""
    slow, quick = new_topic(), new_topic()
    with Raw(broker.port) as raw:
        raw.create(slow, flush_messages="1")
        raw.create(quick)
        for _ in range(3):
            raw.produce(slow)
            raw.produce(quick)
        names = [slow, quick] * 50
        raw.send_bytes(b"".join(frame(produce_request(name, batch()), 9, at) for at, name in enumerate(names)))
        replies = [raw.receive_frame() for _ in names]
    assert [int.from_bytes(reply[:4]) for reply in replies] == list(range(100))


def test_a_topic_that_is_deleted_and_made_again(broker: EmbeddedBroker, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    with Raw(broker.port) as raw:
        raw.create(topic)
        assert [raw.produce(topic).base_offset for _ in range(3)] == [0, 1, 2]
        raw.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=5000), DeleteTopicsResponse, 5)
        assert raw.produce(topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raw.create(topic)
        assert [raw.produce(topic).base_offset for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("configs", "acks", "code"),
    [
        ({"min_insync_replicas": "2"}, -1, ErrorCode.NONE),  # of one replica no more than one can be asked for
        ({"flush_messages": "1"}, -1, ErrorCode.NONE),
        ({"cleanup_policy": "compact"}, 1, ErrorCode.NONE),
    ],
)
def test_settings_hold(
    broker: EmbeddedBroker, new_topic: Callable[[], str], configs: dict[str, Any], acks: int, code: ErrorCode
) -> None:
    topic = new_topic()
    with Raw(broker.port) as raw:
        raw.create(topic, **configs)
        assert [raw.produce(topic, acks=acks).error_code for _ in range(4)] == [code] * 4


def test_internal_topics_are_refused(broker: EmbeddedBroker, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    with Raw(broker.port) as raw:
        raw.create(topic)
        raw.create("__consumer_offsets")
        for _ in range(3):
            assert raw.produce(topic).error_code == 0
            assert raw.produce("__consumer_offsets").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
