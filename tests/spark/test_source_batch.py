"""Topics as DataFrames: what the rows say, what the options choose, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from barnabas.client.wire import Client
from barnabas.client.wire.admin import create_topic, delete_records
from barnabas.model.ids import TopicPartition
from barnabas.testing import EmbeddedBroker
from barnabas.wire.compression import Codec
from tests.spark.conftest import Reading, values, write

FIRST_MS = 1_700_000_000_000


def found(frame: Any) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


def of(partition: int, *offsets: int) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in offsets]


@pytest.fixture
def filled(client: Client, topic: str) -> str:
    """Offsets 0 to 9 of partition 0 and 0 to 4 of partition 1, a millisecond between each and the next."""
    write(client, topic, values(10), timestamp=FIRST_MS)
    write(client, topic, values(5), partition=1, timestamp=FIRST_MS)
    return topic


def test_rows_are_what_was_written(reading: Reading, client: Client, topic: str) -> None:
    """Every codec, null and empty keys and values, headers, times."""
    rows = [(b"k", b"v"), (None, b"only a value"), (b"only a key", None), (b"", b""), (b"\xff\x00", "ü".encode())]
    for index, codec in enumerate(Codec):
        headers = [("a", b"1"), ("ü", None), ("a", b"")] if index % 2 else []
        write(client, topic, rows, codec=codec, timestamp=FIRST_MS + 1000 * index, headers=headers)
    read = reading.batch(subscribe=topic, includeHeaders=True).orderBy("offset").collect()
    assert [(row.key, row.value) for row in read] == [tuple(row) for row in rows * len(Codec)]
    assert [row.offset for row in read] == list(range(len(read)))
    assert {row.topic for row in read} == {topic}
    assert {row.partition for row in read} == {0}
    assert {row.timestampType for row in read} == {0}
    assert [row.timestamp for row in read[:2]] == [
        datetime(2023, 11, 14, 22, 13, 20),
        datetime(2023, 11, 14, 22, 13, 20, 1000),
    ]
    assert read[0].headers is None
    assert [tuple(header) for header in read[5].headers] == [("a", b"1"), ("ü", None), ("a", b"")]


def test_the_columns_are_those_of_sparks_source(reading: Reading, topic: str) -> None:
    plain = (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    assert reading.batch(subscribe=topic).schema.simpleString() == plain
    with_headers = reading.batch(subscribe=topic, includeHeaders="true").schema.simpleString()
    assert with_headers == plain[:-1] + ",headers:array<struct<key:string,value:binary>>>"


def test_a_topic_without_records_has_no_rows(reading: Reading, topic: str) -> None:
    assert reading.batch(subscribe=topic).collect() == []


def test_topics_are_chosen(reading: Reading, client: Client, filled: str) -> None:
    other = f"{filled}-other"
    create_topic(client, other, partitions=1)
    write(client, other, values(3))

    def counted(**options: Any) -> dict[str, int]:
        return {row.topic: row["count"] for row in reading.batch(**options).groupBy("topic").count().collect()}

    assert counted(subscribe=f"{filled}, {other}") == {filled: 15, other: 3}
    assert counted(subscribePattern=f"{filled}.*") == {filled: 15, other: 3}
    assert counted(subscribePattern="-other$") == {other: 3}
    assert counted(assign=json.dumps({filled: [1], other: [0]})) == {filled: 5, other: 3}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, of(0, *range(10)) + of(1, *range(5))),
        ({"startingOffsets": {"0": 7, "1": -2}, "endingOffsets": {"0": -1, "1": 2}}, of(0, 7, 8, 9) + of(1, 0, 1)),
        ({"startingTimestamp": FIRST_MS + 3, "endingTimestamp": FIRST_MS + 5}, of(0, 3, 4) + of(1, 3, 4)),
        ({"startingOffsetsByTimestamp": {"0": FIRST_MS + 8, "1": FIRST_MS + 4}}, of(0, 8, 9) + of(1, 4)),
        ({"endingOffsetsByTimestamp": {"0": FIRST_MS + 1, "1": FIRST_MS + 99}}, of(0, 0) + of(1, *range(5))),
        (
            {"startingTimestamp": FIRST_MS + 8, "startingOffsetsByTimestampStrategy": "latest"},
            of(0, 8, 9),
        ),
        ({"startingOffsets": {"0": 10, "1": 5}}, []),
    ],
)
def test_bounds_choose_rows(
    reading: Reading, filled: str, options: dict[str, Any], expected: list[tuple[int, int]]
) -> None:
    named = {name: json.dumps({filled: each}) if isinstance(each, dict) else each for name, each in options.items()}
    assert found(reading.batch(subscribe=filled, **named)) == expected


def test_ranges_are_split_among_tasks(reading: Reading, filled: str) -> None:
    every = of(0, *range(10)) + of(1, *range(5))
    for options, tasks in (
        ({}, 2),
        ({"minPartitions": 6}, 6),
        ({"maxRecordsPerPartition": 3}, 6),
        ({"maxRecordsPerPartition": 8, "minPartitions": 6}, 6),
    ):
        frame = reading.batch(subscribe=filled, **options)
        assert frame.rdd.getNumPartitions() == tasks
        assert found(frame) == every


def test_offsets_that_are_gone_fail_or_are_left_out(reading: Reading, client: Client, filled: str) -> None:
    delete_records(client, {TopicPartition(filled, 0): 6})
    bounds = {
        "startingOffsets": json.dumps({filled: {"0": 2, "1": 0}}),
        "endingOffsets": json.dumps({filled: {"0": 8, "1": 50}}),
    }
    with pytest.raises(Exception, match=f"{filled}-0: offsets 2 to 7 are to be read, but the log holds offsets 6 to 9"):
        reading.batch(subscribe=filled, **bounds).collect()
    read = reading.batch(subscribe=filled, failOnDataLoss="false", **bounds)
    assert found(read) == of(0, 6, 7) + of(1, *range(5))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOfsets": "earliest"}, "startingofsets is no option: startingOffsets?"),
        ({"startingOffsets": "latest"}, "startingOffsets is latest"),
        ({"kafka__sasl__mechanism": "PLAIN"}, "kafka.sasl.mechanism cannot be set"),
        ({"startingOffsets": '{"t":{"0":1}}'}, "startingOffsets must name all partitions that are read"),
        ({"startingTimestamp": FIRST_MS + 7}, "has no record at or after 1700000000007"),
        ({"subscribe": "no-such-topic"}, "topic no-such-topic: there is no such topic"),
        ({"startingTimestamp": FIRST_MS + 3, "endingTimestamp": FIRST_MS}, "reading starts at offset 3, after its end"),
    ],
)
def test_what_is_wrong_is_told(reading: Reading, filled: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(Exception, match=r"SparkOptionError|BrokerError") as caught:
        reading.batch(**{"subscribe": filled, **options}).collect()
    assert words in str(caught.value)


def test_a_schema_cannot_be_given(spark: Any, broker: EmbeddedBroker, filled: str) -> None:
    reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    with pytest.raises(Exception, match="the schema is fixed and cannot be given"):
        reader.option("subscribe", filled).schema("value string").load().collect()


def test_sql_reads_a_topic(spark: Any, broker: EmbeddedBroker, filled: str) -> None:
    spark.sql(
        f"CREATE TEMPORARY VIEW of_topic USING barnabas OPTIONS "
        f"(`kafka.bootstrap.servers` '{broker.bootstrap_servers}', subscribe '{filled}')"
    )
    try:
        assert spark.sql("SELECT count(*) AS n FROM of_topic WHERE partition = 1").collect()[0].n == 5
    finally:
        spark.sql("DROP VIEW of_topic")


def test_both_isolation_levels_read(reading: Reading, filled: str) -> None:
    for level in ("read_committed", "read_uncommitted"):
        assert len(found(reading.batch(subscribe=filled, kafka__isolation__level=level))) == 15


# Filters


@pytest.fixture(params=["true", "false"])
def pushdown(request: pytest.FixtureRequest, spark: Any) -> Any:
    name = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(name)
    spark.conf.set(name, request.param)
    yield request.param == "true"
    spark.conf.set(name, before)


@pytest.mark.parametrize(
    ("condition", "expected", "tasks"),
    [
        ("partition = 1", of(1, *range(5)), 1),
        ("offset BETWEEN 3 AND 5", of(0, 3, 4, 5) + of(1, 3, 4), 2),
        ("topic = 'x'", [], 1),
        ("offset > 6 AND CAST(value AS STRING) <> 'v8'", of(0, 7, 9), 1),
        ("timestamp >= TIMESTAMP '2023-11-14 22:13:20.007'", of(0, 7, 8, 9), 1),
        ("timestamp < TIMESTAMP '2023-11-14 22:13:20.002'", of(0, 0, 1) + of(1, 0, 1), 2),
        ("partition IN (0, 5) AND (offset = 1 OR offset = 8)", of(0, 1, 8), 1),
    ],
)
def test_filters_choose_rows_pushed_down_or_not(
    reading: Reading, filled: str, pushdown: bool, condition: str, expected: list[tuple[int, int]], tasks: int
) -> None:
    frame = reading.batch(subscribe=filled).where(condition)
    assert found(frame) == expected
    if pushdown:
        assert frame.rdd.getNumPartitions() == tasks


def test_a_time_filter_keeps_records_that_came_late(
    reading: Reading, spark: Any, client: Client, topic: str, new_topic: Callable[[], str]
) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    for timestamp in (FIRST_MS, FIRST_MS + 5000, FIRST_MS + 1000, FIRST_MS + 6000):
        write(client, topic, values(1), timestamp=timestamp)
    frame = reading.batch(subscribe=topic)
    assert found(frame.where("timestamp >= TIMESTAMP '2023-11-14 22:13:22'")) == of(0, 1, 3)
    assert found(frame.where("timestamp <= TIMESTAMP '2023-11-14 22:13:22'")) == of(0, 0, 2)
