"""DataFrames into topics: batch and stream, every column of Spark's Kafka sink, and what is refused."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.client.wire import Client
from barnabas.client.wire.admin import create_topic
from barnabas.client.wire.data import FetchLimits, fetch
from barnabas.client.wire.decoding import decode
from barnabas.model.ids import TopicPartition
from barnabas.spark.options import parse_sink
from barnabas.testing import EmbeddedBroker
from barnabas.wire.batch import read_header
from barnabas.wire.compression import Codec
from barnabas.wire.murmur2 import partition_for_key
from barnabas.wire.records import Record
from tests.spark.conftest import Reading, values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def stored(client: Client, topic: str) -> dict[int, list[Record]]:
    found: dict[int, list[Record]] = {}
    for partition in client.topic(topic).partitions:
        offset, records = 0, []
        while True:
            (answer,) = fetch(client, {TopicPartition(topic, partition): offset}, FetchLimits(max_wait_ms=0))
            if not len(answer.records):
                break
            decoded = decode(answer, offset)
            records += decoded.records
            offset = decoded.next_offset
        found[partition] = records
    return found


def contents(client: Client, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    return sorted(((row.key, row.value) for rows in stored(client, topic).values() for row in rows), key=repr)


@pytest.fixture
def save(broker: EmbeddedBroker) -> Callable[..., None]:
    def write(df: DataFrame, **options: Any) -> None:
        writer = df.write.format("barnabas").option("kafka.bootstrap.servers", broker.bootstrap_servers)
        for name, value in options.items():
            writer = writer.option(name.replace("__", "."), value)
        writer.mode("append").save()

    return write


Save = Callable[..., None]


def reason_of(caught: pytest.ExceptionInfo[BaseException]) -> str:
    return str(caught.value)


class TestBatch:
    def test_keys_and_values_as_text(self, spark: SparkSession, client: Client, topic: str, save: Save) -> None:
        df = spark.range(5000).selectExpr("concat('k', id % 100) key", "concat('v', id) value")
        save(df, topic=topic, kafka__compression__type="zstd")
        found = stored(client, topic)
        assert sorted(row.value for rows in found.values() for row in rows) == sorted(b"v%d" % i for i in range(5000))  # type: ignore[type-var]
        for partition, rows in found.items():
            assert {partition_for_key(row.key or b"", 2) for row in rows} == {partition}
        (answer,) = fetch(client, {TopicPartition(topic, 0): 0})
        assert read_header(answer.records).codec is Codec.ZSTD

    def test_all_columns(
        self, spark: SparkSession, client: Client, topic: str, new_topic: Callable[[], str], save: Save
    ) -> None:
        other = new_topic()
        create_topic(client, other, partitions=1)
        df = spark.sql(
            f"""
            select * from values
              ('{topic}', 1, cast('a' as binary), cast(null as binary), array(struct('h', cast('x' as binary)))),
              ('{topic}', 0, null, cast('b' as binary), null),
              ('{other}', null, cast('c' as binary), cast('d' as binary), array())
            as (topic, partition, key, value, headers)
            """
        ).selectExpr(
            "topic", "partition", "key", "value", "cast(headers as array<struct<key: string, value: binary>>) headers"
        )
        save(df.coalesce(1))
        by_partition = stored(client, topic)
        assert [(row.key, row.value, row.headers) for row in by_partition[1]] == [(b"a", None, (("h", b"x"),))]
        assert [(row.key, row.value, row.headers) for row in by_partition[0]] == [(None, b"b", ())]
        assert contents(client, other) == [(b"c", b"d")]

    def test_the_option_topic_comes_before_the_column(
        self, spark: SparkSession, client: Client, topic: str, save: Save
    ) -> None:
        save(spark.sql("select 'elsewhere' topic, 'v' value"), topic=topic)
        assert contents(client, topic) == [(None, b"v")]

    def test_a_topic_that_is_not_there_is_created(
        self, spark: SparkSession, client: Client, new_topic: Callable[[], str], save: Save
    ) -> None:
        created = new_topic()
        save(spark.sql("select 'a' value"), topic=created)
        assert contents(client, created) == [(None, b"a")]

    def test_what_was_read_can_be_written(
        self,
        reading: Reading,
        client: Client,
        topic: str,
        new_topic: Callable[[], str],
        fill: Callable[..., None],
        save: Save,
    ) -> None:
        target = new_topic()
        create_topic(client, target, partitions=2)
        fill(topic, values(50), partition=1, headers=[("h", b"x")])
        df = reading.batch(subscribe=topic, includeHeaders=True)
        save(df, topic=target, includeTimestamp=True)
        assert [row._replace(offset=0) for row in stored(client, target)[1]] == [
            row._replace(offset=0) for row in stored(client, topic)[1]
        ]


class TestRefusals:
    @pytest.mark.parametrize(
        ("query", "text"),
        [
            ("select 1 id", "column 'value' is missing"),
            ("select 1 value", "column 'value' is int: string or binary is right"),
            ("select 'a' value, 1.5D key", "column 'key' is double: string or binary is right"),
            ("select 'a' value, 1L partition", "column 'partition' is bigint: int is right"),
            ("select 'a' value, array('x') headers", "column 'headers' is array<string>"),
        ],
    )
    def test_columns(self, spark: SparkSession, topic: str, save: Save, query: str, text: str) -> None:
        with pytest.raises(Exception, match="SinkColumnError") as caught:
            save(spark.sql(query), topic=topic)
        assert text in reason_of(caught)

    def test_no_topic_at_all(self, spark: SparkSession, save: Save) -> None:
        with pytest.raises(Exception, match="column 'topic' is missing: add it, or set the option topic"):
            save(spark.sql("select 'a' value"))

    def test_without_a_mode(self, spark: SparkSession, broker: EmbeddedBroker, topic: str) -> None:
        """Spark refuses its default mode for every source in Python, before it asks the source; it names the remedy."""
        writer = spark.sql("select 'a' value").write.format("barnabas").option("topic", topic)
        with pytest.raises(Exception, match=r'cannot be written in the "ErrorIfExists" mode.*use .*the "Append"'):
            writer.option("kafka.bootstrap.servers", broker.bootstrap_servers).save()

    def test_unknown_option(self, spark: SparkSession, topic: str, save: Save) -> None:
        with pytest.raises(Exception, match="tpoic is no option: topic"):
            save(spark.sql("select 'a' value"), topic=topic, tpoic="x")

    def test_partition_that_is_not_there(self, spark: SparkSession, topic: str, save: Save) -> None:
        with pytest.raises(Exception, match=f"column 'partition': 7 is no partition of topic {topic}, which has 2"):
            save(spark.sql("select 'a' value, 7 partition"), topic=topic)


class TestStream:
    def test_from_topic_to_topic(
        self,
        reading: Reading,
        client: Client,
        broker: EmbeddedBroker,
        topic: str,
        new_topic: Callable[[], str],
        fill: Callable[..., None],
        tmp_path: Path,
    ) -> None:
        target = new_topic()
        create_topic(client, target, partitions=3)
        rows = values(2000)
        fill(topic, rows[:1000], partition=0)
        fill(topic, rows[1000:], partition=1)

        def run() -> None:
            df = reading.stream(subscribe=topic, startingOffsets="earliest").select("key", "value")
            writer = df.writeStream.format("barnabas").option("kafka.bootstrap.servers", broker.bootstrap_servers)
            writer = writer.option("topic", target).option("checkpointLocation", str(tmp_path / "checkpoint"))
            query = writer.trigger(availableNow=True).start()
            assert query.awaitTermination(60)
            assert query.exception() is None

        run()
        assert contents(client, target) == sorted(rows, key=repr)
        more = values(10, first=2000)
        fill(topic, more)
        run()
        assert contents(client, target) == sorted(rows + more, key=repr)


def test_a_spark_without_a_class_for_it_hands_streams_over_in_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark 4.0 asks whether a writer is a DataSourceArrowWriter, and calls commit as it does for any stream."""
    from pyspark.sql import datasource

    from barnabas.spark import sink as stream_writer

    monkeypatch.delattr(datasource, "DataSourceStreamArrowWriter")
    found = runpy.run_path(stream_writer.__file__)["StreamArrowWriter"]  # a copy: other modules have its classes
    assert issubclass(found, datasource.DataSourceArrowWriter)
    assert found.commit is datasource.DataSourceStreamWriter.commit


def test_nobody_is_asked_when_a_writer_is_made() -> None:
    from pyspark.sql.types import StructType

    from barnabas.spark.sink import writer

    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
    assert parse_sink(options).topic == "t"
    for streaming in (True, False):
        assert writer(options, StructType().add("value", "string"), streaming=streaming) is not None
