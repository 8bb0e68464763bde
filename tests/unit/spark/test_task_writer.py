"""Arrow batches into topics of a real broker, over connections that break: all is stored, once, in order."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from barnabas.client.arrow.encoding import RowRefused
from barnabas.client.wire import BrokerError, BrokerUnavailable, Client, ConnectionSettings
from barnabas.client.wire.address import Address
from barnabas.client.wire.admin import create_topic
from barnabas.client.wire.data import FetchLimits, fetch
from barnabas.client.wire.decoding import decode
from barnabas.model.ids import TopicPartition
from barnabas.spark import producer
from barnabas.spark.client_settings import SparkOptionError
from barnabas.spark.options import parse_sink
from barnabas.spark.task_writer import Counts, TopicWriter, delivery_of, write_batches
from barnabas.testing import EmbeddedBroker
from barnabas.wire import batch as batches
from barnabas.wire.records import Record

NewTopic = Callable[[], str]


@pytest.fixture(autouse=True)
def fresh_identities() -> Iterator[None]:
    producer._idle.clear()
    yield
    producer._idle.clear()


@pytest.fixture
def client(shared_broker: EmbeddedBroker) -> Iterator[Client]:
    with Client(shared_broker.bootstrap_servers) as made:
        yield made


def options(servers: str, topic: str | None, **given: str) -> Any:
    named = {name.replace("_", "."): value for name, value in given.items()}
    plain = {"kafka.bootstrap.servers": servers} | ({"topic": topic} if topic else {})
    return parse_sink(plain | named)


def stored(client: Client, topic: str) -> dict[int, list[Record]]:
    """All records, by partition."""
    found: dict[int, list[Record]] = {}
    for partition in client.topic(topic).partitions:
        place = TopicPartition(topic, partition)
        offset, records = 0, []
        while True:
            (answer,) = fetch(client, {place: offset}, FetchLimits(max_wait_ms=0))
            if not len(answer.records):
                break
            decoded = decode(answer, offset)
            records += decoded.records
            offset = decoded.next_offset
        found[partition] = records
    return found


def values(count: int, size: int = 100, start: int = 0) -> list[bytes]:
    return [(b"%d " % number).ljust(size, b".") for number in range(start, start + count)]


def table(made: list[bytes], **columns: Any) -> pa.RecordBatch:
    arrays = {"value": pa.array(made, pa.binary())} | {name: pa.array(column) for name, column in columns.items()}
    return pa.record_batch(list(arrays.values()), list(arrays))


def test_rows_by_key(shared_broker: EmbeddedBroker, client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    create_topic(client, topic, partitions=4)
    made = values(20_000)
    keys = [b"k%d" % (number % 50) for number in range(len(made))]
    parts = [table(made[i : i + 3000], key=keys[i : i + 3000]) for i in range(0, len(made), 3000)]
    counts = write_batches(options(shared_broker.bootstrap_servers, topic, kafka_compression_type="lz4"), parts)
    found = stored(client, topic)
    assert counts.rows == len(made)
    assert sorted(row.value or b"" for rows in found.values() for row in rows) == sorted(made)
    for rows in found.values():
        numbers = [int((row.value or b"").split()[0]) for row in rows]
        assert numbers == sorted(numbers)
        assert len({row.key for row in rows}) < 50


def test_rows_name_their_topics(shared_broker: EmbeddedBroker, client: Client, new_topic: NewTopic) -> None:
    topics = [new_topic() for _ in range(3)]
    for topic in topics:
        create_topic(client, topic, partitions=1)
    made = values(300)
    names = [topics[number % 3] for number in range(300)]
    write_batches(options(shared_broker.bootstrap_servers, None), [table(made, topic=names)])
    for index, topic in enumerate(topics):
        assert [row.value for row in stored(client, topic)[0]] == made[index::3]
    with pytest.raises(RowRefused, match="column 'topic': null"):
        write_batches(options(shared_broker.bootstrap_servers, None), [table([b"a", b"b"], topic=[topics[0], None])])


def test_timestamps_are_written_where_asked(shared_broker: EmbeddedBroker, client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    create_topic(client, topic, partitions=1)
    given = table([b"a"], timestamp=pa.array([1_600_000_000_000_000], pa.timestamp("us", "UTC")))
    write_batches(options(shared_broker.bootstrap_servers, topic, includeTimestamp="true"), [given])
    write_batches(options(shared_broker.bootstrap_servers, topic), [given])
    first, second = stored(client, topic)[0]
    assert first.timestamp == 1_600_000_000_000
    assert second.timestamp > 1_700_000_000_000


def test_no_rows_ask_nobody() -> None:
    assert write_batches(options("127.0.0.1:1", "nothing"), [table([])]) == Counts()


def test_a_topic_is_created_where_the_broker_allows_it(
    shared_broker: EmbeddedBroker, client: Client, new_topic: NewTopic
) -> None:
    """As Kafka's producers do, and Spark's own sink with them."""
    topic = new_topic()
    assert write_batches(options(shared_broker.bootstrap_servers, topic), [table([b"a"])]).rows == 1
    assert len(client.topic(topic).partitions) >= 1


def test_unknown_topic() -> None:
    with (
        EmbeddedBroker(settings={"auto.create.topics.enable": "false"}) as broker,
        pytest.raises(BrokerError, match="topic missing-topic: there is no such topic"),
    ):
        write_batches(options(broker.bootstrap_servers, "missing-topic"), [table([b"a"])])


def test_no_broker() -> None:
    with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:1"):
        write_batches(options("127.0.0.1:1", "t", kafka_default_api_timeout_ms="10"), [table([b"a"])])


def test_batches_fit_the_topic(shared_broker: EmbeddedBroker, client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    create_topic(client, topic, partitions=1, configs={"max.message.bytes": "5000"})
    made = values(500)
    write_batches(options(shared_broker.bootstrap_servers, topic), [table(made)])
    assert [row.value for row in stored(client, topic)[0]] == made
    with pytest.raises(BrokerError, match=r"batch of \d+ bytes \(1 records\) is above the topic's max.message.bytes"):
        write_batches(options(shared_broker.bootstrap_servers, topic), [table([bytes(9000)])])


@pytest.mark.parametrize(
    ("name", "value"), [("kafka.acks", "1"), ("kafka.acks", "0"), ("kafka.enable.idempotence", "false")]
)
def test_without_producer_ids(
    shared_broker: EmbeddedBroker, client: Client, new_topic: NewTopic, name: str, value: str
) -> None:
    topic = new_topic()
    create_topic(client, topic, partitions=1)
    write_batches(options(shared_broker.bootstrap_servers, topic, **{name: value}), [table([b"a"])])
    place = TopicPartition(topic, 0)
    (answer,) = fetch(client, {place: 0}, FetchLimits(max_wait_ms=5000))
    assert batches.read_header(answer.records).producer_id == -1


def test_idempotence_needs_all_acks() -> None:
    with pytest.raises(SparkOptionError, match=r"kafka\.acks is 1"):
        delivery_of(options("h:1", "t", kafka_acks="1", kafka_enable_idempotence="true"))


def test_a_producer_id_serves_many_tasks(shared_broker: EmbeddedBroker, client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    create_topic(client, topic, partitions=1)
    for start in range(0, 40, 10):
        write_batches(options(shared_broker.bootstrap_servers, topic), [table(values(10, start=start))])
    (answer,) = fetch(client, {TopicPartition(topic, 0): 0})
    headers = [header for _, header in batches.iterate(answer.records)]
    assert len({header.producer_id for header in headers}) == 1
    assert [header.base_sequence for header in headers] == [0, 10, 20, 30]
    with pytest.raises(BrokerError):
        write_batches(options(shared_broker.bootstrap_servers, None), [table([b"a", b"b"], topic=[topic, "no/topic"])])


class Breaking:
    """A socket that is lost now and then: before a request is whole, or after it and before its reply."""

    def __init__(self, plain: socket.socket, dice: random.Random, rate: float) -> None:
        self._plain = plain
        self._dice = dice
        self._rate = rate

    def sendall(self, data: Any) -> None:
        if len(data) > 1000 and self._dice.random() < self._rate:
            with memoryview(data) as view:
                self._plain.sendall(view[: self._dice.randrange(len(view))])
            self._break()
        self._plain.sendall(data)

    def recv_into(self, view: memoryview) -> int:
        if self._dice.random() < self._rate / 2:
            self._break()
        return self._plain.recv_into(view)

    def _break(self) -> None:
        self._plain.close()
        raise ConnectionResetError("broken by the test")

    def settimeout(self, seconds: float | None) -> None:
        self._plain.settimeout(seconds)

    def close(self) -> None:
        self._plain.close()


@pytest.mark.parametrize("seed", range(4))
def test_broken_connections_lose_and_double_nothing(
    shared_broker: EmbeddedBroker, client: Client, new_topic: NewTopic, seed: int
) -> None:
    dice = random.Random(seed)
    topic = new_topic()
    create_topic(client, topic, partitions=3)
    breaks = 0

    def wrap(plain: socket.socket, _address: Address) -> Any:
        nonlocal breaks
        breaks += 1
        return Breaking(plain, dice, 0.1)

    settings = ConnectionSettings(wrap=wrap)
    wanted = options(shared_broker.bootstrap_servers, topic, kafka_batch_size="3000", **{"kafka.retry.backoff.ms": "1"})
    made = values(20_000)
    with Client(shared_broker.bootstrap_servers, settings, backoff_s=0.001, max_backoff_s=0.01) as flaky:
        writer = TopicWriter(flaky, wanted)
        for start in range(0, len(made), 1000):
            part = made[start : start + 1000]
            writer.add(table(part, partition=pa.array([n % 3 for n in range(len(part))], pa.int32())))
        assert writer.finish().rows == len(made)
    assert breaks > 20
    found = stored(client, topic)
    assert sum(map(len, found.values())) == len(made)
    for rows in found.values():
        numbers = [int((row.value or b"").split()[0]) for row in rows]
        assert numbers == sorted(set(numbers))


def test_a_broker_that_is_killed_and_comes_back(tmp_path: Path) -> None:
    made = values(60_000)
    broker = EmbeddedBroker(data=str(tmp_path)).start()
    port = broker.port
    with Client(broker.bootstrap_servers) as client:
        create_topic(client, "orders", partitions=2)
    halfway = threading.Event()

    def parts() -> Iterator[pa.RecordBatch]:
        for start in range(0, len(made), 2000):
            if start == 30_000:
                halfway.set()
            yield table(made[start : start + 2000])

    outcome: list[Any] = []

    def run() -> None:
        wanted = options(f"127.0.0.1:{port}", "orders", kafka_batch_size="20000")
        try:
            outcome.append(write_batches(wanted, parts()))
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert halfway.wait(60)
        broker.kill()
        broker = EmbeddedBroker(data=str(tmp_path), port=port).start()
        thread.join(60)
        assert outcome == [Counts(len(made), outcome[0].batches, outcome[0].bytes)]
        with Client(broker.bootstrap_servers) as client:
            found = [row.value for rows in stored(client, "orders").values() for row in rows]
        assert sorted(map(bytes, found)) == sorted(made)  # type: ignore[arg-type]
    finally:
        broker.stop()
        thread.join(60)
