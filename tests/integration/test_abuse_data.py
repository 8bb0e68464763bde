"""Abuse by content: names, batches, epochs, numbers that are well formed and wrong."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.model.errors import ErrorCode
from barnabas.wire import batch as batches
from barnabas.wire.api.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas.wire.api.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from barnabas.wire.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas.wire.api.fetch import FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from barnabas.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.wire.api.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.wire.compression import Codec, compress
from barnabas.wire.schema import Message
from tests.integration.abuse import unharmed
from tests.reliability.process import BrokerProcess
from tests.reliability.raw import Raw, batch, fetch_request, wait_until


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parent")


@pytest.fixture(scope="module")
def broker(parent: Path) -> Iterator[BrokerProcess]:
    arguments = ("--set", "barnabas.validation=all", "--set", "max.incremental.fetch.session.cache.slots=3")
    with BrokerProcess(parent / "data", *arguments) as process:
        yield process


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[Raw]:
    with unharmed(broker), Raw(broker.port) as connected:
        yield connected


# 14: names that are paths

ILLEGAL = ["..", ".", "../x", "/etc/passwd", "a/b", "a\0b", "\0", "x" * 250, "", " ", "a b", "tür", "a\nb", "%2e%2e"]


def create(name: str) -> tuple[Message, type[Message], int]:
    return CreateTopicsRequest(topics=[CreatableTopic(name, 1, 1)]), CreateTopicsResponse, 7


NAMED: dict[str, Callable[[str], tuple[Message, type[Message], int, Callable[[Any], int]]]] = {
    "CreateTopics": lambda name: (*create(name), lambda reply: reply.topics[0].error_code),
    "Metadata": lambda name: (
        MetadataRequest(topics=[MetadataRequestTopic(name=name)]),
        MetadataResponse,
        9,
        lambda reply: reply.topics[0].error_code,
    ),
    "Fetch": lambda name: (
        fetch_request(name),
        FetchResponse,
        12,
        lambda reply: reply.responses[0].partitions[0].error_code,
    ),
    "ListOffsets": lambda name: (
        ListOffsetsRequest(-1, topics=[ListOffsetsTopic(name, [ListOffsetsPartition(0, timestamp=-1)])]),
        ListOffsetsResponse,
        7,
        lambda reply: reply.topics[0].partitions[0].error_code,
    ),
    "DescribeConfigs": lambda name: (
        DescribeConfigsRequest(resources=[DescribeConfigsResource(2, name, None)]),
        DescribeConfigsResponse,
        4,
        lambda reply: reply.results[0].error_code,
    ),
    "IncrementalAlterConfigs": lambda name: (
        IncrementalAlterConfigsRequest(
            resources=[AlterConfigsResource(2, name, [AlterableConfig("retention.ms", 0, "1")])]
        ),
        IncrementalAlterConfigsResponse,
        1,
        lambda reply: reply.responses[0].error_code,
    ),
    "CreatePartitions": lambda name: (
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name, 5, None)]),
        CreatePartitionsResponse,
        3,
        lambda reply: reply.results[0].error_code,
    ),
    "DeleteTopics": lambda name: (
        DeleteTopicsRequest(topics=[DeleteTopicState(name)]),
        DeleteTopicsResponse,
        6,
        lambda reply: reply.responses[0].error_code,
    ),
    "DeleteRecords": lambda name: (
        DeleteRecordsRequest(topics=[DeleteRecordsTopic(name, [DeleteRecordsPartition(0, -1)])]),
        DeleteRecordsResponse,
        2,
        lambda reply: reply.topics[0].partitions[0].error_code,
    ),
    "OffsetForLeaderEpoch": lambda name: (
        OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(name, [OffsetForLeaderPartition(0, -1, 0)])]),
        OffsetForLeaderEpochResponse,
        4,
        lambda reply: reply.topics[0].partitions[0].error_code,
    ),
}


@pytest.mark.parametrize("api", NAMED)
def test_illegal_names_are_refused_and_never_paths(client: Raw, parent: Path, api: str) -> None:
    for name in ILLEGAL:
        request, answer, version, code_of = NAMED[api](name)
        code = code_of(client.call(request, answer, version))
        assert code in (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (name, code)
        assert api not in ("CreateTopics", "Metadata") or code == ErrorCode.INVALID_TOPIC_EXCEPTION, name
    assert [path.name for path in parent.iterdir()] == ["data"]


def test_illegal_names_are_not_produced_to(client: Raw, parent: Path) -> None:
    for name in ILLEGAL:
        assert client.produce(name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [path.name for path in parent.iterdir()] == ["data"]


def test_the_longest_name_works(client: Raw) -> None:
    name = "n" * 249
    client.create(name)
    assert client.produce(name).error_code == 0
    reply = client.call(DeleteTopicsRequest(topics=[DeleteTopicState(name)]), DeleteTopicsResponse, 6)
    assert reply.responses[0].error_code == 0


# 15: bombs


def bomb(codec: Codec, *, count: int = 1, size: int = 512 << 20) -> bytes:
    """A batch of one record whose value is ``size`` zeros, as far as the codec can say so in less than 1 MB."""
    raw = bytes(1 << 20)
    piece = compress(codec, raw)
    repeats = max(1, min(size >> 20, 900_000 // len(piece)))
    if codec is Codec.GZIP:
        body = gzip.compress(bytes(size), 9)[:900_000] if size <= 256 << 20 else piece * repeats
    elif codec is Codec.ZSTD:
        body = piece * repeats
    else:
        body = piece
    header = batches.BatchHeader(0, 49 + len(body), -1, 2, 0, codec, count - 1, 0, 0, -1, -1, -1, count)
    whole = bytearray(batches.encode_header(header)) + body
    batches.restamp(whole, 0)
    return bytes(whole)


def large(codec: Codec, size: int) -> bytes:
    """A valid batch of one record of so many zeros."""
    return batch(bytes(size), codec=codec)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.name)
@pytest.mark.parametrize("where", ["validation", "recompression"])
def test_bombs_are_bounded(client: Raw, codec: Codec, where: str) -> None:
    topic = f"bomb-{where}-{codec.name}"
    client.create(topic, **({"compression_type": "uncompressed"} if where == "recompression" else {}))
    for records in (bomb(codec), bomb(codec, count=100_000), large(codec, 120 << 20)):
        if len(records) > 1_000_000:
            continue  # this codec cannot say it in so few bytes
        answer = client.produce(topic, records)
        assert answer.error_code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE)
    assert client.produce(topic, batch(b"v" * 1000, codec=codec)).error_code == 0


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.name)
def test_bombs_in_a_log_are_bounded_when_a_time_is_looked_up(tmp_path: Path, codec: Codec) -> None:
    with BrokerProcess(tmp_path) as plain, unharmed(plain), Raw(plain.port) as client:
        client.create("bomb")
        for records in (bomb(codec), large(codec, 120 << 20)):
            if len(records) > 1_000_000:
                continue
            assert client.produce("bomb", records).error_code == 0  # compressed batches are kept as they are
        for timestamp in (0, 1, -3):
            request = ListOffsetsRequest(
                -1, topics=[ListOffsetsTopic("bomb", [ListOffsetsPartition(0, timestamp=timestamp)])]
            )
            answer = client.call(request, ListOffsetsResponse, 7).topics[0].partitions[0]
            assert answer.error_code in (0, ErrorCode.CORRUPT_MESSAGE)


def test_a_bomb_of_millions_of_records_is_bounded_when_a_time_is_looked_up(tmp_path: Path) -> None:
    """Fourteen million records of seven bytes, in a few kilobytes."""
    count = 14_000_000
    body = compress(Codec.ZSTD, b"\x0c\0\0\0\1\1\0" * count)
    header = batches.BatchHeader(0, 49 + len(body), -1, 2, 0, Codec.ZSTD, count - 1, 5, 5, -1, -1, -1, count)
    whole = bytearray(batches.encode_header(header)) + body
    batches.restamp(whole, 0)
    with BrokerProcess(tmp_path) as plain, unharmed(plain), Raw(plain.port) as client:
        client.create("bomb")
        assert client.produce("bomb", bytes(whole)).error_code == 0
        request = ListOffsetsRequest(-1, topics=[ListOffsetsTopic("bomb", [ListOffsetsPartition(0, timestamp=1)])])
        client.call(request, ListOffsetsResponse, 7)
        assert plain.peak_bytes < 400 << 20


# 16: batches that lie


def header_with(records: bytes, **changes: int) -> bytes:
    found = batches.read_header(memoryview(bytearray(records)), 0)._replace(**changes)
    whole = bytearray(batches.encode_header(found)) + records[batches.HEADER_SIZE :]
    batches.restamp(whole, 0)
    return bytes(whole)


def with_body(change: Callable[[bytearray], None]) -> bytes:
    whole = bytearray(batch(b"one", b"two", b"three"))
    change(whole)
    struct.pack_into(">i", whole, 8, len(whole) - 12)
    batches.restamp(whole, 0)
    return bytes(whole)


def lie_about_length(whole: bytearray) -> None:
    whole[61] += 2


def lie_about_value(whole: bytearray) -> None:
    whole[-2 - len(b"three")] = 0x7E


def lie_about_offset_delta(whole: bytearray) -> None:
    whole[64] = 0x0A


def append_junk(whole: bytearray) -> None:
    whole += b"junk"


PLAIN = batch(b"one", b"two", b"three")
LIES = {
    "bad CRC": bytes([*PLAIN[:-1], PLAIN[-1] ^ 1]),
    "bad CRC field": PLAIN[:17] + b"\0\0\0\0" + PLAIN[21:],
    "count above the records": header_with(PLAIN, record_count=4, last_offset_delta=3),
    "count below the records": header_with(PLAIN, record_count=2, last_offset_delta=1),
    "count is not last offset delta + 1": header_with(PLAIN, record_count=3, last_offset_delta=7),
    "count of 0": header_with(PLAIN, record_count=0, last_offset_delta=-1),
    "count of -1": header_with(PLAIN, record_count=-1),
    "count of 2^31-1": header_with(PLAIN, record_count=2**31 - 1, last_offset_delta=2**31 - 2),
    "offset delta of 2^31-1": header_with(PLAIN, last_offset_delta=2**31 - 1),
    "base offset": header_with(PLAIN, base_offset=5),
    "control batch": header_with(PLAIN, attributes=batches.CONTROL),
    "batch cut short": PLAIN[:-3],
    "batch of a header only": PLAIN[:61],
    "less than a header": PLAIN[:40],
    "nothing": b"",
    "two batches": PLAIN + PLAIN,
    "batch length of -1": PLAIN[:8] + b"\xff\xff\xff\xff" + PLAIN[12:],
    "batch length of 2^31-1": PLAIN[:8] + b"\x7f\xff\xff\xff" + PLAIN[12:],
    "record's length": with_body(lie_about_length),
    "value's length": with_body(lie_about_value),
    "record's offset delta": with_body(lie_about_offset_delta),
    "bytes behind the last record": with_body(append_junk),
    "compressed junk": header_with(PLAIN, attributes=Codec.ZSTD),
    "sequence without a producer epoch": header_with(PLAIN, producer_id=5, producer_epoch=-1, base_sequence=-1),
}


@pytest.mark.parametrize("lie", LIES)
def test_batches_that_lie_are_refused(client: Raw, lie: str) -> None:
    client.send(MetadataRequest(topics=[MetadataRequestTopic(name="lies")]), 9)
    client.receive(MetadataResponse, 9)
    wait_until(lambda: client.fetch("lies").error_code == 0, "the topic is made by asking for it")
    before = client.fetch("lies").high_watermark
    answer = client.produce("lies", LIES[lie])
    assert answer.error_code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD), ErrorCode(answer.error_code).name
    assert client.fetch("lies").high_watermark == before
    assert client.produce("lies", PLAIN).error_code == 0


@pytest.mark.parametrize("codec_bits", [5, 6, 7])
def test_an_unknown_codec_is_refused(client: Raw, codec_bits: int) -> None:
    _ensure(client, "codecs")
    answer = client.produce("codecs", header_with(PLAIN, attributes=codec_bits))
    assert answer.error_code in (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.INVALID_RECORD, 2)


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_other_formats_are_refused(client: Raw, magic: int) -> None:
    """A message set of old: offset, size, crc, magic, attributes, (timestamp,) key, value."""
    _ensure(client, "formats")
    timestamp = struct.pack(">q", 0) if magic == 1 else b""
    message = struct.pack(">Ibb", 0, magic, 0) + timestamp + struct.pack(">ii5s", -1, 5, b"value")
    long = bytearray(PLAIN)
    struct.pack_into(">b", long, 16, magic)
    expected = (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)
    for records in (struct.pack(">qi", 0, len(message)) + message, bytes(long)):
        answer = client.produce("formats", records)
        assert answer.error_code in expected, ErrorCode(answer.error_code).name


def test_invalid_acks_are_refused(client: Raw) -> None:
    _ensure(client, "acks")
    assert client.produce("acks", acks=5).error_code == ErrorCode.INVALID_REQUIRED_ACKS


# 17: idempotent producers out of step


def test_sequences_and_producer_epochs(client: Raw) -> None:
    _ensure(client, "sequences")

    def send(sequence: int, epoch: int = 1, count: int = 1) -> int:
        values = [b"v"] * count
        answer = client.produce(
            "sequences", batch(*values, producer_id=4711, producer_epoch=epoch, base_sequence=sequence)
        )
        return answer.error_code

    assert send(0) == 0
    assert send(1, count=3) == 0
    assert send(1, count=3) == 0  # a repetition is acknowledged, and not appended
    assert send(6) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(2) in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert send(0, epoch=0) in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
    assert send(5, epoch=2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER  # a new epoch begins at 0
    assert send(0, epoch=2) == 0
    assert client.fetch("sequences").high_watermark == 5


# 18: leader epochs


def test_stale_and_future_leader_epochs(client: Raw) -> None:
    _ensure(client, "epochs")
    client.produce("epochs")
    reply = client.call(MetadataRequest(topics=[MetadataRequestTopic(name="epochs")]), MetadataResponse, 9)
    current = reply.topics[0].partitions[0].leader_epoch
    for epoch, code in (
        (current, 0),
        (current + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (2**31 - 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (current - 1, ErrorCode.FENCED_LEADER_EPOCH if current else 0),
    ):
        assert client.fetch("epochs", epoch=epoch).error_code == code
        offsets = ListOffsetsRequest(-1, topics=[ListOffsetsTopic("epochs", [ListOffsetsPartition(0, epoch, -1)])])
        assert client.call(offsets, ListOffsetsResponse, 7).topics[0].partitions[0].error_code == code
        ends = OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic("epochs", [OffsetForLeaderPartition(0, epoch, current)])]
        )
        answer = client.call(ends, OffsetForLeaderEpochResponse, 4).topics[0].partitions[0]
        assert answer.error_code == code
        assert code or answer.end_offset == 1


def test_stale_leader_epochs_after_a_restart(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    with broker:
        with Raw(broker.port) as client:
            client.create("t")
            client.produce("t")
        broker.stop()
        broker.start()
        with Raw(broker.port) as client:
            assert client.fetch("t", epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH


# 19: numbers that are too large


def topic_result(client: Raw, topic: CreatableTopic) -> int:
    return client.call(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse, 7).topics[0].error_code


def test_topics_that_cannot_be(client: Raw) -> None:
    config = CreatableTopicConfig
    for topic, code in (
        (CreatableTopic("big", 1_000_000, 1), ErrorCode.INVALID_PARTITIONS),
        (CreatableTopic("big", 2**31 - 1, 1), ErrorCode.INVALID_PARTITIONS),
        (CreatableTopic("big", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (CreatableTopic("big", -7, 1), ErrorCode.INVALID_PARTITIONS),
        (CreatableTopic("big", 1, 99), ErrorCode.INVALID_REPLICATION_FACTOR),
        (CreatableTopic("big", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (CreatableTopic("big", 1, 1, configs=[config("no.such.setting", "1")]), ErrorCode.INVALID_CONFIG),
        (CreatableTopic("big", 1, 1, configs=[config("retention.ms", "soon")]), ErrorCode.INVALID_CONFIG),
        (CreatableTopic("big", 1, 1, configs=[config("cleanup.policy", "burn")]), ErrorCode.INVALID_CONFIG),
        (CreatableTopic("big", 1, 1, configs=[config("segment.bytes", "-1")]), ErrorCode.INVALID_CONFIG),
        (CreatableTopic("big", 1, 1, configs=[config("retention.ms", None)]), ErrorCode.INVALID_CONFIG),
        (
            CreatableTopic("big", -1, -1, assignments=[CreatableReplicaAssignment(0, [99])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ):
        assert topic_result(client, topic) == code, topic
    reply = client.call(MetadataRequest(topics=None), MetadataResponse, 9)
    assert "big" not in {topic.name for topic in reply.topics}


def test_too_many_topics_in_one_request_are_refused(client: Raw) -> None:
    """One more than are taken; those that fit are not made either in this test, which only validates."""
    topics = [CreatableTopic(f"many-{number}", 10, 1) for number in range(1001)]
    reply = client.call(CreateTopicsRequest(topics=topics, validate_only=True), CreateTopicsResponse, 7)
    assert reply.topics[-1].error_code == ErrorCode.INVALID_PARTITIONS


def test_partitions_that_cannot_be_added(client: Raw) -> None:
    _ensure(client, "grow")
    for count in (0, 1, -5, 1_000_000, 2**31 - 1):
        request = CreatePartitionsRequest(topics=[CreatePartitionsTopic("grow", count, None)])
        reply = client.call(request, CreatePartitionsResponse, 3)
        assert reply.results[0].error_code == ErrorCode.INVALID_PARTITIONS


def test_settings_that_cannot_be(client: Raw) -> None:
    _ensure(client, "set")
    wrong = {"no.such": "1", "retention.ms": "x", "max.message.bytes": "-5", "compression.type": "rar"}
    for name, value in wrong.items():
        request = IncrementalAlterConfigsRequest(
            resources=[AlterConfigsResource(2, "set", [AlterableConfig(name, 0, value)])]
        )
        reply = client.call(request, IncrementalAlterConfigsResponse, 1)
        assert reply.responses[0].error_code == ErrorCode.INVALID_CONFIG, name


# Fetch sessions


def session_fetch(client: Raw, topic: str | None, session_id: int, epoch: int, **fields: Any) -> FetchResponse:
    request = fetch_request(topic or "", session_id=session_id, session_epoch=epoch, **fields)
    if topic is None:
        request.topics = []
    return client.call(request, FetchResponse, 12)


def test_fetch_sessions_out_of_step(client: Raw) -> None:
    _ensure(client, "sessions")
    begun = session_fetch(client, "sessions", 0, 0)
    assert begun.session_id > 0
    assert session_fetch(client, None, begun.session_id + 1, 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert session_fetch(client, None, begun.session_id, 7).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    good = session_fetch(client, None, begun.session_id, 1)
    assert (good.error_code, good.responses) == (0, [])
    by_id = FetchRequest(session_id=begun.session_id, session_epoch=2, topics=[FetchTopic(topic_id=bytes(16))])
    assert client.call(by_id, FetchResponse, 13).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    ended = session_fetch(client, "sessions", begun.session_id, -1)
    assert (ended.error_code, ended.session_id) == (0, 0)
    assert session_fetch(client, None, begun.session_id, 2).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_sessions_in_use_are_not_taken_away_for_others(client: Raw) -> None:
    """Three slots: a fourth client is answered in full each time, and the first three go on."""
    _ensure(client, "slots")
    ids = [session_fetch(client, "slots", 0, 0).session_id for _ in range(4)]
    assert ids[3] == 0
    for session_id in ids[:3]:
        assert session_fetch(client, None, session_id, 1).error_code == 0
        session_fetch(client, "slots", session_id, -1)


def test_a_session_of_a_million_partitions_is_not_kept(broker: BrokerProcess) -> None:
    request = fetch_request("nothing", session_id=0, session_epoch=0)
    wanted = request.topics[0].partitions[0]
    request.topics[0].partitions = [wanted] + [type(wanted)(number, partition_max_bytes=1) for number in range(150_000)]
    with unharmed(broker):
        for _ in range(3):
            with Raw(broker.port) as attacker:
                reply = attacker.call(request, FetchResponse, 12)
                assert reply.session_id == 0


def test_forgetting_what_was_never_fetched(client: Raw) -> None:
    _ensure(client, "forgetting")
    begun = session_fetch(client, "forgetting", 0, 0)
    forgotten = [ForgottenTopic("forgetting", partitions=[0, 1, 99]), ForgottenTopic("other", partitions=[0])]
    reply = session_fetch(client, None, begun.session_id, 1, forgotten_topics_data=forgotten)
    assert (reply.error_code, reply.responses) == (0, [])
    session_fetch(client, "forgetting", begun.session_id, -1)


# Large answers to small requests


def test_a_resource_named_a_hundred_thousand_times_is_described_once(broker: BrokerProcess) -> None:
    with Raw(broker.port) as client:
        _ensure(client, "again")
    request = DescribeConfigsRequest(resources=[DescribeConfigsResource(2, "again", None)] * 100_000)
    with unharmed(broker), Raw(broker.port) as attacker:
        assert len(attacker.call(request, DescribeConfigsResponse, 4).results) == 1


def _ensure(client: Raw, topic: str) -> None:
    code = topic_result(client, CreatableTopic(topic, 1, 1))
    assert code in (0, ErrorCode.TOPIC_ALREADY_EXISTS)


def test_a_transaction_without_an_id_is_refused_and_hides_nothing(client: Raw) -> None:
    """It could never be ended: whatever came after it would be hidden from read_committed consumers for good."""
    client.create("untransacted")
    client.produce("untransacted")  # the next one is known by its beginning
    wanted = {"producer_id": 77, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    for records in (batch(b"evil", **wanted), batch(b"evil", control=True, **wanted)):
        assert client.produce("untransacted", records).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    control = batch(b"evil", control=True, producer_id=77, producer_epoch=0, base_sequence=0)
    assert client.produce("untransacted", control).error_code == ErrorCode.INVALID_RECORD
    client.produce("untransacted")
    seen = client.fetch("untransacted", isolation_level=1)
    assert (seen.high_watermark, seen.last_stable_offset) == (2, 2)
