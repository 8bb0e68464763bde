"""The reader of streams as Spark's planning process uses it, against a real broker but without Spark around it."""

from __future__ import annotations

import json
import pickle
import time
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client.wire import BrokerError, Client, groups
from barnabas.client.wire.admin import create_partitions, create_topic, delete_records, delete_topics
from barnabas.client.wire.errors import DataLoss
from barnabas.model.ids import TopicPartition
from barnabas.testing import EmbeddedBroker
from tests.reliability.raw import wait_until
from tests.spark.conftest import values, write

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PySpark's own, of pandas
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

    from barnabas.spark import source, stream

ALL = ReadAllAvailable()

Make = Callable[..., stream.StreamReader]


@pytest.fixture
def make(broker: EmbeddedBroker, topic: str) -> Iterator[Make]:
    made: list[stream.StreamReader] = []

    def make(**options: Any) -> stream.StreamReader:
        named = {"subscribe": topic, "startingOffsets": "earliest", "fetchOffset.retryIntervalMs": "1"}
        named |= {name.replace("__", "."): str(value) for name, value in options.items()}
        named["kafka.bootstrap.servers"] = broker.bootstrap_servers
        reader = source.stream_reader(named, source.schema(named.get("includeHeaders") == "true"))
        assert isinstance(reader, stream.StreamReader)
        made.append(reader)
        return reader

    yield make
    for reader in made:
        reader.stop()


def text(value: Any) -> Any:
    """Through the checkpoint and back."""
    return json.loads(json.dumps(value))


def planned(reader: stream.StreamReader, start: Any, end: Any) -> list[tuple[int, int, int]]:
    tasks = reader.partitions(text(start), text(end))
    return [(task.value.partition.partition, task.value.start, task.value.stop) for task in tasks]


def test_a_run_goes_from_the_start_to_the_end(make: Make, client: Client, topic: str) -> None:
    write(client, topic, values(10))
    reader = make()
    start = reader.initialOffset()
    assert reader.initialOffset() == start
    end = reader.latestOffset(text(start), ALL)
    assert planned(reader, start, end) == [(0, 0, 10)]
    assert end[topic] == {"0": 10, "1": 0}
    assert json.dumps(reader.latestOffset(text(end), ALL)) == json.dumps(end)
    assert reader.reportLatestOffset() == {topic: {"0": 10, "1": 0}}
    write(client, topic, values(2), partition=1)
    after = reader.latestOffset(text(end), ALL)
    assert planned(reader, end, after) == [(1, 0, 2)]


def test_the_first_batch_is_the_same_after_a_restart(make: Make, client: Client, topic: str) -> None:
    """Spark keeps no record of where the first batch begins, and "latest" has moved on meanwhile."""
    write(client, topic, values(10))
    reader = make(startingOffsets="latest")
    start = reader.initialOffset()
    write(client, topic, values(5))
    end = reader.latestOffset(text(start), ALL)
    assert planned(reader, start, end) == [(0, 10, 15)]
    write(client, topic, values(5))
    again = make(startingOffsets="latest")
    assert planned(again, again.initialOffset(), end) == [(0, 10, 15)]
    assert planned(again, end, again.latestOffset(text(end), ALL)) == [(0, 15, 20)]


def test_a_batch_is_limited_in_proportion(make: Make, client: Client, topic: str) -> None:
    write(client, topic, values(90))
    write(client, topic, values(10), partition=1)
    reader = make(maxOffsetsPerTrigger=20)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(20)
    start = reader.initialOffset()
    end = reader.latestOffset(text(start), limit)
    assert planned(reader, start, end) == [(0, 0, 18), (1, 0, 2)]
    assert reader.reportLatestOffset() == {topic: {"0": 90, "1": 10}}
    assert planned(reader, start, reader.latestOffset(text(start), ALL)) == [(0, 0, 90), (1, 0, 10)]


def test_a_small_batch_waits(make: Make, client: Client, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    passed_s = 0
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed_s, sleep=time.sleep)
    monkeypatch.setattr(stream, "time", clock)
    write(client, topic, values(3))
    reader = make(minOffsetsPerTrigger=10, maxTriggerDelay="1h")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    start = reader.initialOffset()
    first = reader.latestOffset(text(start), limit)
    assert planned(reader, start, first) == [(0, 0, 3)]  # the first never waits, as with Spark's own source
    write(client, topic, values(4))
    assert reader.latestOffset(text(first), limit) == first
    passed_s = 3600  # the delay that was asked for
    second = reader.latestOffset(text(first), limit)
    assert planned(reader, first, second) == [(0, 3, 7)]
    write(client, topic, values(10))
    assert planned(reader, second, reader.latestOffset(text(second), limit)) == [(0, 7, 17)]


def test_both_limits_hold(make: Make, client: Client, topic: str) -> None:
    reader = make(minOffsetsPerTrigger=5, maxOffsetsPerTrigger=8)
    limit = reader.getDefaultReadLimit()
    start = reader.initialOffset()
    assert reader.latestOffset(text(start), limit) == start
    write(client, topic, values(4))
    assert reader.latestOffset(text(start), limit) == start
    write(client, topic, values(20))
    assert planned(reader, start, reader.latestOffset(text(start), limit)) == [(0, 0, 8)]


def test_a_run_up_to_now_ends_there(make: Make, client: Client, topic: str) -> None:
    write(client, topic, values(10))
    reader = make(maxOffsetsPerTrigger=6, minOffsetsPerTrigger=6)
    reader.prepareForTriggerAvailableNow()
    write(client, topic, values(10))
    create_partitions(client, topic, 3)
    start, limit = reader.initialOffset(), reader.getDefaultReadLimit()
    first = reader.latestOffset(text(start), limit)
    second = reader.latestOffset(text(first), limit)
    assert planned(reader, start, first) == [(0, 0, 6)]
    assert planned(reader, first, second) == [(0, 6, 10)]  # though these are fewer than a batch should have
    assert reader.latestOffset(text(second), limit) == second


def test_new_partitions_are_picked_up(make: Make, client: Client, topic: str) -> None:
    reader = make(startingOffsets="latest")
    start = reader.initialOffset()
    create_partitions(client, topic, 4)
    write(client, topic, values(7), partition=3)
    end = reader.latestOffset(text(start), ALL)
    assert planned(reader, start, end) == [(3, 0, 7)]
    assert reader.latestOffset(text(end), ALL) == end


def test_tasks_are_split_only_when_asked(make: Make, client: Client, topic: str) -> None:
    write(client, topic, values(10))
    for options, tasks in (({}, 1), ({"minPartitions": 4}, 4), ({"maxRecordsPerPartition": 2}, 5)):
        reader = make(**options)
        start = reader.initialOffset()
        assert len(planned(reader, start, reader.latestOffset(text(start), ALL))) == tasks


# Losses


def test_retention_that_overtakes_the_query(
    make: Make, client: Client, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(client, topic, values(30))
    start = make().initialOffset()
    delete_records(client, {TopicPartition(topic, 0): 20})
    words = f"{topic}-0: offset 0 would be read next, but the log holds offsets 20 to 29"
    with pytest.raises(DataLoss, match=words):
        make().latestOffset(text(start), ALL)
    reader = make(failOnDataLoss="false", maxOffsetsPerTrigger=4)
    end = reader.latestOffset(text(start), ReadMaxRows(4))
    assert planned(reader, start, end) == [(0, 20, 24)]
    assert words in caplog.text


def test_a_topic_that_was_made_again(make: Make, client: Client, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    write(client, topic, values(30))
    reader = make()
    end = reader.latestOffset(text(reader.initialOffset()), ALL)
    delete_topics(client, [topic])
    create_topic(client, topic, partitions=1)
    write(client, topic, values(40))
    words = f"{topic}-0: the topic was deleted and created again after offset 30 was reached"
    with pytest.raises(DataLoss, match=words) as caught:
        reader.latestOffset(text(end), ALL)
    assert f"{topic}-1: the partition is gone" in str(caught.value)
    reader = make(failOnDataLoss="false")
    after = reader.latestOffset(text(end), ALL)
    assert planned(reader, end, after) == [(0, 0, 40)]
    assert words in caplog.text
    caplog.clear()
    assert reader.latestOffset(text(after), ALL) == after
    assert not caplog.text


def test_a_topic_that_is_gone(make: Make, client: Client, topic: str, new_topic: Callable[[], str]) -> None:
    other = new_topic()
    create_topic(client, other, partitions=1)
    both = f"{topic},{other}"
    start = make(subscribe=both).initialOffset()
    delete_topics(client, [other])
    write(client, topic, values(3))
    with pytest.raises(DataLoss, match=f"{other}-0: the partition is gone, of which offset 0 would be read next"):
        make(subscribe=both).latestOffset(text(start), ALL)
    reader = make(subscribe=both, failOnDataLoss="false")
    end = reader.latestOffset(text(start), ALL)
    assert planned(reader, start, end) == [(0, 0, 3)]
    with pytest.raises(BrokerError, match=f"topic {other}: there is no such topic"):
        make(subscribe=both).initialOffset()


def test_an_offset_beyond_the_log(make: Make, client: Client, topic: str) -> None:
    write(client, topic, values(3))
    reader = make(startingOffsets=json.dumps({topic: {"0": 50, "1": 0}}))
    with pytest.raises(DataLoss, match=f"{topic}-0: offset 50 would be read next, but the log holds offsets 0 to 2"):
        reader.latestOffset(text(reader.initialOffset()), ALL)


# Taking over from Spark's own source


def test_a_checkpoint_of_sparks_source_is_taken_over(make: Make, client: Client, topic: str) -> None:
    write(client, topic, values(10))
    reader = make()
    start = {topic: {"0": 4, "1": 0}}
    assert planned(reader, start, {topic: {"0": 6, "1": 0}}) == [(0, 4, 6)]
    assert planned(reader, {topic: {"1": 0}}, {topic: {"0": 6, "1": 0}}) == [(0, 0, 6)]
    assert reader.latestOffset({topic: {"0": 10, "1": 0}}, ALL) == {topic: {"0": 10, "1": 0}}
    end = reader.latestOffset(text(start), ALL)
    assert planned(reader, start, end) == [(0, 4, 10)]
    assert end["~"]["query"]


# The group


def lag(client: Client, group: str, topic: str) -> dict[int, int]:
    found = groups.committed_offsets(client, group)
    return {place.partition: each.offset for place, each in found.items() if place.topic == topic}


def test_progress_is_published_up_to_the_last_batch(make: Make, client: Client, topic: str) -> None:
    write(client, topic, values(10))
    reader = make()
    start = reader.initialOffset()
    group = f"barnabas-spark-{start['~']['query']}"
    end = reader.latestOffset(text(start), ALL)
    reader.flush()
    assert lag(client, group, topic) == {0: 0, 1: 0}  # the batch is planned, not done
    assert reader.latestOffset(text(end), ALL) == end
    assert lag(client, group, topic) == {0: 10, 1: 0}
    write(client, topic, values(5))
    again = make()
    again.latestOffset(text(end), ALL)
    again.stop()
    assert {each.group_id for each in groups.list_groups(client) if each.group_id.startswith(group)} == {group}


@pytest.mark.parametrize(
    ("options", "group"),
    [({"kafka__group__id": "mine-{topic}"}, "mine-{topic}"), ({"groupIdPrefix": "pre-{topic}"}, "pre-{topic}-{query}")],
)
def test_the_group_can_be_named(make: Make, client: Client, topic: str, options: dict[str, str], group: str) -> None:
    reader = make(**{name: value.format(topic=topic) for name, value in options.items()})
    start = reader.initialOffset()
    reader.latestOffset(text(start), ALL)
    assert lag(client, group.format(topic=topic, query=start["~"]["query"]), topic) == {0: 0, 1: 0}


def test_progress_need_not_be_published(make: Make, client: Client, topic: str) -> None:
    reader = make(publishProgress="false", kafka__group__id=f"silent-{topic}")
    reader.latestOffset(text(reader.initialOffset()), ALL)
    reader.commit(reader.initialOffset())
    assert f"silent-{topic}" not in {each.group_id for each in groups.list_groups(client)}


def test_a_group_that_refuses_does_not_stop_the_query(
    make: Make, client: Client, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise BrokerError(25, topic)

    monkeypatch.setattr("barnabas.spark.progress.commit_offsets", refuse)
    reader = make()
    start = reader.initialOffset()
    assert reader.latestOffset(text(start), ALL) == start
    wait_until(lambda: "the progress of the query was not published" in caplog.text, "the refusal is logged")


def test_a_reader_travels_to_executors(make: Make, client: Client, topic: str) -> None:
    write(client, topic, values(4))
    reader = make()
    (task,) = reader.partitions(text(reader.initialOffset()), reader.latestOffset(text(reader.initialOffset()), ALL))
    there = pickle.loads(pickle.dumps(make()))
    assert sum(batch.num_rows for batch in there.read(pickle.loads(pickle.dumps(task)))) == 4
