"""A task's reading and the driver's questions against a real broker, without Spark: what brokers do meanwhile."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from barnabas.client.arrow import ranges
from barnabas.client.arrow.ranges import end_of_batches
from barnabas.client.wire import BrokerError, BrokerUnavailable, Client, Connection, groups
from barnabas.client.wire.admin import create_topic, delete_records, delete_topics
from barnabas.client.wire.connection import Sent
from barnabas.client.wire.data import OffsetRange
from barnabas.client.wire.errors import DataLoss
from barnabas.model.ids import TopicPartition, uuid_text
from barnabas.spark import cluster, progress
from barnabas.spark import task_reader as reading
from barnabas.spark.cluster import Cluster
from barnabas.spark.options import SourceOptions, parse_source
from barnabas.spark.progress import Publisher
from barnabas.spark.task_reader import ReadSettings, read_range
from barnabas.testing import EmbeddedBroker
from barnabas.wire import records
from barnabas.wire.compression import Codec
from tests.spark.conftest import values, write


@pytest.fixture
def every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is small enough to be put together."""
    monkeypatch.setattr(ranges, "SMALLEST_BATCH_ROWS", 1)


@pytest.fixture(autouse=True)
def _fresh_clients() -> Iterator[None]:
    """A worker's clients live as long as the worker; here that is a test."""
    yield
    for made in reading._clients.values():
        made.close()
    reading._clients.clear()


def settings(broker: EmbeddedBroker, *, fail: bool = True, timeout_s: float = 60, **kafka: object) -> ReadSettings:
    named = {name.replace("__", "."): str(value) for name, value in kafka.items()}
    return ReadSettings(
        kafka={"bootstrap.servers": broker.bootstrap_servers, **named},
        include_headers=False,
        fail_on_data_loss=fail,
        poll_timeout_s=timeout_s,
    )


def topic_id(client: Client, topic: str) -> str:
    return uuid_text(client.load([topic])[topic].topic_id)


def wanted(client: Client, topic: str, start: int, stop: int, partition: int = 0) -> OffsetRange:
    return OffsetRange(TopicPartition(topic, partition), start, stop, topic_id(client, topic))


def offsets(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


@pytest.mark.parametrize(("start", "stop"), [(0, 60), (0, 1), (7, 33), (59, 60), (10, 10)])
def test_a_range_is_read_exactly(broker: EmbeddedBroker, client: Client, topic: str, start: int, stop: int) -> None:
    for first in range(0, 60, 10):
        write(client, topic, values(10, first=first))
    assert offsets(read_range(wanted(client, topic, start, stop), settings(broker))) == list(range(start, stop))


@pytest.mark.parametrize("max_bytes", [1, 600, 5000])
def test_small_fetches_are_put_together(broker: EmbeddedBroker, client: Client, topic: str, max_bytes: int) -> None:
    for first in range(0, 60, 10):
        write(client, topic, values(10, first=first))
    small = settings(broker, max__partition__fetch__bytes=max_bytes)
    batches = list(read_range(wanted(client, topic, 3, 60), small))
    assert len(batches) == 1
    assert offsets(iter(batches)) == list(range(3, 60))


def test_large_fetches_stay_as_they_are(
    broker: EmbeddedBroker, client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "SMALLEST_BATCH_BYTES", 500_000)
    for _ in range(3):
        write(client, topic, [(None, bytes(90_000))] * 10)
    batches = list(read_range(wanted(client, topic, 0, 30), settings(broker, max__partition__fetch__bytes=1_000_000)))
    assert 1 < len(batches) < 30
    assert offsets(iter(batches)) == list(range(30))


def test_what_was_packed_very_tight_comes_in_pieces(
    broker: EmbeddedBroker, client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "LARGEST_BATCH_BYTES", 2_000_000)
    for _ in range(4):
        write(client, topic, [(None, bytes(1_000_000))] * 3, codec=Codec.ZSTD)
    batches = list(read_range(wanted(client, topic, 1, 11), settings(broker)))
    assert len(batches) > 1
    assert offsets(iter(batches)) == list(range(1, 11))


@pytest.mark.usefixtures("every_batch")
def test_the_next_fetch_is_asked_for_before_the_last_is_used(
    broker: EmbeddedBroker, client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    ask_ahead = ranges._Fetcher.ask_ahead
    monkeypatch.setattr(ranges._Fetcher, "ask_ahead", lambda self, at: (asked.append(at), ask_ahead(self, at))[1])
    for _ in range(4):
        write(client, topic, values(10))
    batches = read_range(wanted(client, topic, 0, 40), settings(broker, max__partition__fetch__bytes=1))
    assert next(batches).num_rows == 10
    assert asked == [10]
    assert offsets(batches) == list(range(10, 40))
    assert asked == [10, 20, 30]


@pytest.mark.usefixtures("every_batch")
def test_a_reader_that_is_abandoned_leaves_no_answer_behind(broker: EmbeddedBroker, client: Client, topic: str) -> None:
    for _ in range(4):
        write(client, topic, values(10))
    given = settings(broker, max__partition__fetch__bytes=1)
    first = read_range(wanted(client, topic, 0, 40), given)
    next(first)
    first.close()  # type: ignore[attr-defined]
    assert offsets(read_range(wanted(client, topic, 5, 25), given)) == list(range(5, 25))


def test_the_end_of_whole_batches_is_found_by_their_headers() -> None:
    made = [records.Record(value=b"x" * 50) for _ in range(4)]
    one, two = records.encode_batch(made, base_offset=10), records.encode_batch(made, base_offset=20)
    assert end_of_batches(memoryview(one)) == 14
    assert end_of_batches(memoryview(one + two)) == 24
    assert end_of_batches(memoryview(one + two[:-1])) == 14
    assert end_of_batches(memoryview(one + two[:20])) == 14
    assert end_of_batches(memoryview(one[:-1])) is None
    assert end_of_batches(memoryview(b"")) is None


def test_a_follower_is_read_from_where_the_leader_says_so(
    broker: EmbeddedBroker, client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(client, topic, values(5))
    nodes: list[int] = []
    receive, node = ranges._Fetcher._receive, ranges._Fetcher._node
    leader = client.load([topic])[topic].partitions[0].leader

    def send_away(self: ranges._Fetcher, connection: Connection, sent: Sent) -> ranges.Answer:
        answer = receive(self, connection, sent)
        if self._replica >= 0:
            return answer
        return ranges.Answer(answer.fetched._replace(records=memoryview(b"")), leader)

    monkeypatch.setattr(ranges._Fetcher, "_receive", send_away)
    monkeypatch.setattr(ranges._Fetcher, "_node", lambda self: (nodes.append(self._replica), node(self))[1])
    assert offsets(read_range(wanted(client, topic, 0, 5), settings(broker, client__rack="a"))) == list(range(5))
    assert nodes == [-1, leader]


def test_retention_that_overtakes_a_task_fails_it(broker: EmbeddedBroker, client: Client, topic: str) -> None:
    write(client, topic, values(30))
    delete_records(client, {TopicPartition(topic, 0): 20})
    with pytest.raises(DataLoss) as caught:
        list(read_range(wanted(client, topic, 5, 30), settings(broker)))
    message = str(caught.value)
    assert f"{topic}-0: offsets 5 to 29 are to be read, but the log holds offsets 20 to 29" in message
    assert "failOnDataLoss" in message


def test_or_it_reads_what_is_left(
    broker: EmbeddedBroker, client: Client, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(client, topic, values(30))
    delete_records(client, {TopicPartition(topic, 0): 20})
    given = settings(broker, fail=False)
    assert offsets(read_range(wanted(client, topic, 5, 30), given)) == list(range(20, 30))
    assert f"{topic}-0: offsets 5 to 29 are to be read, but the log holds offsets 20 to 29" in caplog.text
    assert offsets(read_range(wanted(client, topic, 5, 18), given)) == []


def test_an_end_that_is_not_there_is_a_loss(broker: EmbeddedBroker, client: Client, topic: str) -> None:
    write(client, topic, values(5))
    with pytest.raises(DataLoss, match="offsets 9 to 19 are to be read, but the log holds offsets 0 to 4"):
        list(read_range(wanted(client, topic, 9, 20), settings(broker)))


def test_records_that_do_not_come_are_not_waited_for_without_end(
    broker: EmbeddedBroker, client: Client, topic: str
) -> None:
    write(client, topic, values(5))
    given = settings(broker, timeout_s=2, fetch__max__wait__ms=50)
    with pytest.raises(
        TimeoutError, match=f"{topic}-0: the batch reaches to offset 19, but nothing came from offset 5"
    ):
        list(read_range(wanted(client, topic, 0, 20), given))


@pytest.mark.parametrize("is_made_again", [True, False])
def test_a_topic_that_is_deleted_under_a_task_is_a_loss(
    broker: EmbeddedBroker, client: Client, topic: str, is_made_again: bool
) -> None:
    write(client, topic, values(30))
    range_of_old = wanted(client, topic, 0, 30)
    delete_topics(client, [topic])
    if is_made_again:
        create_topic(client, topic, partitions=2)
        write(client, topic, values(50))
    what = "created again" if is_made_again else "the topic is gone"
    with pytest.raises(DataLoss, match=f"{topic}-0: offsets 0 to 29 are to be read, but .*{what}"):
        list(read_range(range_of_old, settings(broker)))
    assert offsets(read_range(range_of_old, settings(broker, fail=False))) == []


@pytest.mark.usefixtures("every_batch")
def test_a_broker_that_goes_away_costs_time_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The broker is killed with a fetch under way and comes back at its port: nothing is missing, nothing is twice."""
    first = EmbeddedBroker(data=str(tmp_path)).start()
    port = first.port
    with Client(first.bootstrap_servers) as client:
        create_topic(client, "t", partitions=1)
        for _ in range(8):
            write(client, "t", values(10))
        given = settings(first, max__partition__fetch__bytes=1)
        batches = read_range(wanted(client, "t", 0, 80), given)
    found = offsets(itertools.islice(batches, 2))
    first.kill()
    started: list[EmbeddedBroker] = []
    later = threading.Timer(1.5, lambda: started.append(EmbeddedBroker(data=str(tmp_path), port=port).start()))
    later.start()
    try:
        found += offsets(batches)
    finally:
        later.join()
        started[0].stop()
    assert found == list(range(80))
    assert "trying again at offset" in caplog.text


def test_a_task_that_starts_while_the_broker_is_away_waits(tmp_path: Path) -> None:
    first = EmbeddedBroker(data=str(tmp_path)).start()
    port, given = first.port, settings(first)
    with Client(first.bootstrap_servers) as client:
        create_topic(client, "t", partitions=1)
        write(client, "t", values(10))
        place = wanted(client, "t", 0, 10)
    first.stop()
    started: list[EmbeddedBroker] = []
    later = threading.Timer(0.5, lambda: started.append(EmbeddedBroker(data=str(tmp_path), port=port).start()))
    later.start()
    try:
        assert offsets(read_range(place, given)) == list(range(10))
    finally:
        later.join()
        started[0].stop()


def test_patience_has_an_end() -> None:
    with EmbeddedBroker() as broker:
        given = settings(broker, timeout_s=2)
    with pytest.raises(BrokerUnavailable, match=given.kafka["bootstrap.servers"]):
        list(read_range(OffsetRange(TopicPartition("t", 0), 0, 5), given))


# The driver's questions


def options(broker: EmbeddedBroker, **given: str) -> SourceOptions:
    named = {name.replace("__", "."): value for name, value in given.items()}
    return parse_source({"kafka.bootstrap.servers": broker.bootstrap_servers, **named}, streaming=True)


@pytest.fixture
def asking() -> Iterator[Callable[[SourceOptions], Cluster]]:
    made: list[Cluster] = []

    def make(given: SourceOptions) -> Cluster:
        made.append(Cluster(given))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_view_has_ids_and_both_ends(
    broker: EmbeddedBroker, client: Client, topic: str, asking: Callable[[SourceOptions], Cluster]
) -> None:
    write(client, topic, values(30))
    delete_records(client, {TopicPartition(topic, 0): 12})
    view = asking(options(broker, subscribe=topic)).view()
    assert view.topic_ids == {topic: topic_id(client, topic)}
    assert view.earliest == {TopicPartition(topic, 0): 12, TopicPartition(topic, 1): 0}
    assert view.latest == {TopicPartition(topic, 0): 30, TopicPartition(topic, 1): 0}


def test_a_pattern_finds_topics_as_they_come(
    broker: EmbeddedBroker, client: Client, topic: str, asking: Callable[[SourceOptions], Cluster]
) -> None:
    groups.commit_offsets(client, "some-group", {TopicPartition(topic, 0): 0})  # so that there is an internal topic
    found = asking(options(broker, subscribePattern=f"{topic}|__consumer"))
    assert set(found.view().topic_ids) == {topic}
    create_topic(client, f"{topic}-more", partitions=1)
    assert set(found.view().topic_ids) == {topic, f"{topic}-more"}


def test_a_topic_that_is_not_there_is_named(
    broker: EmbeddedBroker, topic: str, asking: Callable[[SourceOptions], Cluster]
) -> None:
    found = asking(options(broker, subscribe=f"{topic},{topic}-x"))
    view = found.view()
    with pytest.raises(BrokerError, match=f"topic {topic}-x: there is no such topic"):
        found.check_there(view)
    found.check_there(view, {f"{topic}-x"})
    assigned = asking(options(broker, assign=f'{{"{topic}":[0,7]}}'))
    with pytest.raises(BrokerError, match=f"{topic}-7: assign names it, but topic {topic} has no such partition"):
        assigned.check_there(assigned.view())


def test_a_wrong_address_is_told_soon(
    monkeypatch: pytest.MonkeyPatch, asking: Callable[[SourceOptions], Cluster]
) -> None:
    monkeypatch.setattr(cluster, "FIRST_CONTACT_S", 0.2)
    with EmbeddedBroker() as broker:
        given = options(broker, subscribe="t")
        address = broker.bootstrap_servers
    with pytest.raises(BrokerUnavailable, match=f"no broker answers at {address}: connection refused"):
        asking(given).view()


def test_a_driver_waits_for_a_broker_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asking: Callable[[SourceOptions], Cluster]
) -> None:
    monkeypatch.setattr(cluster, "FIRST_CONTACT_S", 0.0)
    first = EmbeddedBroker(data=str(tmp_path)).start()
    port = first.port
    with Client(first.bootstrap_servers) as client:
        create_topic(client, "t", partitions=1)
    found = asking(options(first, subscribe="t", kafka__default__api__timeout__ms="100"))
    before = found.view()
    first.stop()
    started: list[EmbeddedBroker] = []
    later = threading.Timer(1, lambda: started.append(EmbeddedBroker(data=str(tmp_path), port=port).start()))
    later.start()
    try:
        assert found.view() == before
    finally:
        later.join()
        started[0].stop()


# The group


def test_progress_is_a_group(broker: EmbeddedBroker, client: Client, topic: str) -> None:
    publisher = Publisher({"bootstrap.servers": broker.bootstrap_servers}, f"group-{topic}")
    publisher.publish({TopicPartition(topic, 0): 3})
    publisher.publish({TopicPartition(topic, 0): 5, TopicPartition(topic, 1): 7})
    publisher.flush()
    found = groups.committed_offsets(client, f"group-{topic}")
    assert {partition: each.offset for partition, each in found.items()} == {
        TopicPartition(topic, 0): 5,
        TopicPartition(topic, 1): 7,
    }
    publisher.close()


def test_progress_that_cannot_be_published_is_logged_and_waited_for_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "ATTEMPT_TIMEOUT_MS", 100)
    with EmbeddedBroker() as broker:
        publisher = Publisher({"bootstrap.servers": broker.bootstrap_servers}, "g")
    with caplog.at_level(logging.WARNING, "barnabas.spark"):
        publisher.publish({TopicPartition("t", 0): 3})
        publisher.flush()
        publisher.publish({TopicPartition("t", 0): 4})
        publisher.close()
    assert "the progress of the query was not published as group g: no broker answers" in caplog.text
