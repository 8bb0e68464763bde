"""The sink as Spark calls it, without Spark: planned, pickled, written by tasks, committed, aborted, planned again."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as spark

from barnabas.client.wire import Client
from barnabas.client.wire.admin import create_topic, delete_topics
from barnabas.spark.client_settings import SparkOptionError
from barnabas.spark.tables import sink
from barnabas.spark.tables.errors import AnotherApplication, SchemaChanged, TableError, TopicRecreated
from barnabas.spark.tables.sink import writer
from barnabas.spark.verify import verify
from barnabas.testing import EmbeddedBroker
from tests.unit.spark.tables_kit import FORMATS, offsets_in, opened, rows, settings

KAFKA_COLUMNS = spark.StructType(
    [
        spark.StructField("key", spark.BinaryType()),
        spark.StructField("value", spark.BinaryType()),
        spark.StructField("topic", spark.StringType()),
        spark.StructField("partition", spark.IntegerType()),
        spark.StructField("offset", spark.LongType()),
        spark.StructField("timestamp", spark.TimestampType()),
        spark.StructField("timestampType", spark.IntegerType()),
    ]
)


@pytest.fixture(params=FORMATS)
def table_format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def stream(table_format: str, path: Path, **more: str) -> Any:
    given = settings(table_format, path, applicationId="archive", checkpointLocation="/nowhere", **more)
    return writer(given, KAFKA_COLUMNS, streaming=True)


def run_batch(made: Any, tasks: list[list[pa.RecordBatch]], number: int) -> list[Any]:
    """Tasks run elsewhere: what goes there and comes back is pickled."""
    sent = pickle.dumps(made)
    messages = [pickle.loads(pickle.dumps(pickle.loads(sent).write(iter(task)))) for task in tasks]
    made.commit(messages, number)
    return messages


def test_batches_replays_and_empty_ones(table_format: str, tmp_path: Path) -> None:
    run_batch(stream(table_format, tmp_path), [[rows(range(50))], [rows(range(50, 100))], []], 0)
    run_batch(stream(table_format, tmp_path), [[], []], 1)
    run_batch(stream(table_format, tmp_path), [], 2)
    run_batch(stream(table_format, tmp_path), [[rows(range(100, 120))]], 3)
    run_batch(stream(table_format, tmp_path), [[rows(range(100, 120))]], 3)
    with opened(table_format, tmp_path) as table:
        assert offsets_in(table) == list(range(120))
        assert table.state().commits == 2
        assert [item.batch for item in table.commits() if item.batch is not None] == [3, 0]


def test_what_failed_tasks_leave_is_deleted(table_format: str, tmp_path: Path) -> None:
    made = stream(table_format, tmp_path)
    message = made.write(iter([rows(range(10))]))
    assert len([*tmp_path.rglob("part-*")]) == 1
    made.abort([message, None], 0)
    assert [*tmp_path.rglob("part-*")] == []


def test_an_abort_after_a_commit_that_went_through_deletes_nothing(
    table_format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark calls abort whenever commit raises, even if the table has the batch by then."""
    made = stream(table_format, tmp_path, compactEvery="1")

    def fail(*_: object, **__: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(sink, "maintain", fail)
    messages = [made.write(iter([rows(range(10))]))]
    with pytest.raises(OSError, match="the disk is gone"):
        made.commit(messages, 0)
    made.abort(messages, 0)
    monkeypatch.undo()
    run_batch(stream(table_format, tmp_path), [[rows(range(10))]], 0)
    with opened(table_format, tmp_path) as table:
        assert offsets_in(table) == list(range(10))


def test_maintenance_comes_by_itself_and_its_failure_fails_no_batch(
    table_format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(4):
        run_batch(stream(table_format, tmp_path, compactEvery="2"), [[rows([number])]], number)
    with opened(table_format, tmp_path) as table:
        assert len(table.files()) < 4
        monkeypatch.setattr(type(table), "compact", lambda _: 1 / 0)
    for number in (4, 5):
        run_batch(stream(table_format, tmp_path, compactEvery="2"), [[rows([number])]], number)
    assert "could not be maintained this time: division by zero" in caplog.text
    with opened(table_format, tmp_path) as table:
        assert offsets_in(table) == list(range(6))


def test_a_batch_write_is_repeatable(table_format: str, tmp_path: Path) -> None:
    counted = spark.StructType([spark.StructField("country", spark.StringType())])
    batch = pa.record_batch({"country": ["CH"]})
    given = settings(table_format, tmp_path)
    for _ in range(2):
        numbered = writer({**given, "applicationId": "daily", "batchId": "7"}, counted, streaming=False)
        numbered.commit([numbered.write(iter([batch]))])
    for _ in range(2):
        plain = writer(given, counted, streaming=False)
        plain.commit([plain.write(iter([batch]))])
    with opened(table_format, tmp_path) as table:
        assert pa.Table.from_batches(table.read(["country"])).num_rows == 3


@pytest.mark.parametrize(
    ("given", "streaming", "overwrite", "reason"),
    [
        ({}, False, True, "the mode overwrite cannot be had"),
        ({}, True, True, "the output mode complete cannot be had"),
        ({"batchId": "1"}, False, False, "batchId is 1: it needs an applicationId"),
        ({"batchId": "1", "applicationId": "a"}, True, False, "batchId is 1: a stream numbers its batches itself"),
        ({"partitionBy": "country"}, True, False, "partitionBy names the column country"),
    ],
)
def test_what_cannot_be_had_is_said_at_once(
    tmp_path: Path, given: dict[str, str], streaming: bool, overwrite: bool, reason: str
) -> None:
    options = settings("delta", tmp_path, **given)
    with pytest.raises(SparkOptionError, match=reason):
        writer(options, KAFKA_COLUMNS, streaming=streaming, overwrite=overwrite)  # type: ignore[call-overload]
    assert not (tmp_path / "table" / "_delta_log").exists()


def test_offsets_that_are_asked_for_must_be_there(tmp_path: Path) -> None:
    counted = spark.StructType([spark.StructField("country", spark.StringType())])
    with pytest.raises(TableError, match="trackOffsets is true, but the rows lack"):
        writer(settings("delta", tmp_path, trackOffsets="true"), counted, streaming=True)
    with pytest.raises(TableError, match="the query's id is not known here"):
        writer(settings("delta", tmp_path), counted, streaming=True).write(iter([]))


def test_offsets_may_be_left_alone(table_format: str, tmp_path: Path) -> None:
    """For rows that carry offsets, but several writers mean different things by them."""
    given = settings(table_format, tmp_path, trackOffsets="false")
    for _ in range(2):
        made = writer(given, KAFKA_COLUMNS, streaming=False)
        made.commit([made.write(iter([rows(range(3))]))])
    with opened(table_format, tmp_path) as table:
        assert offsets_in(table) == [0, 0, 1, 1, 2, 2]
        assert table.state().coverage == {}


def test_rows_that_are_left_out_are_logged(table_format: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without an application id a new checkpoint goes on where the table ends."""
    for _ in range(2):
        made = writer(settings(table_format, tmp_path), KAFKA_COLUMNS, streaming=False)
        made.commit([made.write(iter([rows(range(30))]))])
    assert "30 rows were left out: the table" in caplog.text
    assert "set applicationId, and offsetScope to application" in caplog.text


def test_two_applications_that_make_other_rows_of_the_same_records(table_format: str, tmp_path: Path) -> None:
    run_batch(stream(table_format, tmp_path), [[rows(range(10))]], 0)
    other = settings(table_format, tmp_path, applicationId="items")
    made = writer(other, KAFKA_COLUMNS, streaming=True)
    with pytest.raises(AnotherApplication, match="come again from the application items"):
        run_batch(made, [[rows(range(10))]], 0)
    made = writer({**other, "offsetScope": "application"}, KAFKA_COLUMNS, streaming=True)
    run_batch(made, [[rows(range(10))]], 0)
    with opened(table_format, tmp_path) as table:
        assert offsets_in(table) == sorted([*range(10), *range(10)])


def test_a_type_that_changed_between_batches_stops_the_query(table_format: str, tmp_path: Path) -> None:
    run_batch(stream(table_format, tmp_path), [[rows(range(3))]], 0)
    changed = spark.StructType([spark.StructField("offset", spark.StringType())])
    with pytest.raises(SchemaChanged, match="the column offset is string, but int64"):
        writer(settings(table_format, tmp_path), changed, streaming=True)


@pytest.fixture
def client(shared_broker: EmbeddedBroker) -> Iterator[Client]:
    with Client(shared_broker.bootstrap_servers) as made:
        yield made


def test_a_topic_that_was_created_anew_is_noticed(
    tmp_path: Path, client: Client, shared_broker: EmbeddedBroker, new_topic: Any
) -> None:
    topic = new_topic()
    create_topic(client, topic, partitions=1)
    asked = {"kafka.bootstrap.servers": shared_broker.bootstrap_servers}
    run_batch(stream("delta", tmp_path, **asked), [[rows(range(10), topic=topic)]], 0)
    delete_topics(client, [topic])
    create_topic(client, topic, partitions=1)
    with pytest.raises(TopicRecreated, match=f"the topic {topic} was deleted and created again.* set failOnDataLoss"):
        stream("delta", tmp_path, **asked)


def test_a_topic_that_was_created_anew_may_be_gone_on_with(
    table_format: str,
    tmp_path: Path,
    client: Client,
    shared_broker: EmbeddedBroker,
    new_topic: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As the source does with the same option: the new topic's records are added, whatever their offsets."""
    topic = new_topic()
    create_topic(client, topic, partitions=1)
    asked = {"kafka.bootstrap.servers": shared_broker.bootstrap_servers, "failOnDataLoss": "false"}
    run_batch(stream(table_format, tmp_path, **asked), [[rows(range(10), topic=topic)]], 0)
    delete_topics(client, [topic])
    create_topic(client, topic, partitions=1)
    run_batch(stream(table_format, tmp_path, **asked), [[rows(range(4), topic=topic)]], 1)
    run_batch(stream(table_format, tmp_path, **asked), [[rows(range(4, 6), topic=topic)]], 2)
    assert f"the topic {topic} was deleted and created again" in caplog.text
    assert caplog.text.count("for failOnDataLoss is false") == 2  # planned and committed once, then it is known
    fresh = {**settings(table_format, tmp_path, **asked), "applicationId": "archive"}
    again = writer(fresh, KAFKA_COLUMNS, streaming=False)
    again.commit([again.write(iter([rows(range(8), topic=topic)]))])
    with opened(table_format, tmp_path, **asked) as table:
        assert offsets_in(table) == sorted([*range(10), *range(8)])
        notes = verify(table, client, topic).notes
        assert "rows of the deleted topic are in the table with the same offsets" in " ".join(notes)


def test_rows_of_a_deleted_topic_are_not_taken_for_those_of_the_new_one(
    tmp_path: Path, client: Client, shared_broker: EmbeddedBroker, new_topic: Any
) -> None:
    """Where only the table's rows could tell, they are of both topics."""
    topic = new_topic()
    create_topic(client, topic, partitions=1)
    asked = {"kafka.bootstrap.servers": shared_broker.bootstrap_servers, "failOnDataLoss": "false"}
    run_batch(stream("delta", tmp_path, **asked), [[rows(range(10), topic=topic)]], 0)
    delete_topics(client, [topic])
    create_topic(client, topic, partitions=1)
    run_batch(stream("delta", tmp_path, **asked), [[rows([0, 5], topic=topic)]], 1)
    again = writer({**settings("delta", tmp_path, **asked), "applicationId": "archive"}, KAFKA_COLUMNS, streaming=False)
    with pytest.raises(TopicRecreated, match=r"which of the offsets 0 to 5 of .* cannot be told"):
        again.commit([again.write(iter([rows(range(6), topic=topic)]))])


def test_a_broker_that_does_not_answer_stops_no_commit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    asked = {"kafka.bootstrap.servers": "127.0.0.1:1"}
    run_batch(stream("delta", tmp_path, **asked), [[rows([1, 2, 9])]], 0)
    with opened("delta", tmp_path) as table:
        assert offsets_in(table) == [1, 2, 9]
        assert table.commits()[0].ranges[0].missing == {"unknown": 6}
    assert "gaps of orders-0 stay unexplained" in caplog.text
