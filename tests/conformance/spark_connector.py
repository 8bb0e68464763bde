"""Spark's own Kafka connector against a broker: it prints what it checked and ends with "all ok".

    spark_connector.py <bootstrap servers> <jars> <an empty folder>

Runs on the PySpark that the connector belongs to (see bench/connector.py), against Kafka as against Barnabas.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyspark.sql import DataFrame, Row, SparkSession

PARTITIONS = 2
HOUR_MS = 3_600_000
YESTERDAY_MS = (int(time.time()) - 86_400) * 1000
"""Records that are older than a topic's retention would be deleted."""
WAIT_S = 30.0
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def check(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(what)
    print(f"ok {what}", flush=True)


class Fixture:
    """A session, a broker, and a folder."""

    def __init__(self, spark: SparkSession, servers: str, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self._servers = servers
        self._admin = AdminClient({"bootstrap.servers": servers})

    def create(self, topic: str) -> None:
        for future in self._admin.create_topics([NewTopic(topic, PARTITIONS)]).values():
            future.result(WAIT_S)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        for future in self._admin.delete_records([TopicPartition(topic, partition, before)]).values():
            future.result(WAIT_S)

    def produce(
        self,
        topic: str,
        values: Iterable[str],
        *,
        partition: int = 0,
        timestamp_ms: int = YESTERDAY_MS,
        headers: list[tuple[str, str | bytes | None]] | None = None,
    ) -> None:
        producer = Producer({"bootstrap.servers": self._servers})
        for value in values:
            producer.produce(
                topic, value, key=f"k{value}", partition=partition, timestamp=timestamp_ms, headers=headers or []
            )
        left = producer.flush(WAIT_S)
        if left:
            raise AssertionError(f"{left} messages of {topic} were not taken")

    def read(self, **options: str) -> DataFrame:
        return self.spark.read.format("kafka").options(**self._with_servers(options)).load()

    def stream(self, **options: str) -> DataFrame:
        return self.spark.readStream.format("kafka").options(**self._with_servers(options)).load()

    def write(self, frame: DataFrame, **options: str) -> None:
        frame.write.format("kafka").options(**self._with_servers(options)).save()

    def write_stream(self, frame: DataFrame, checkpoint: str, **options: str) -> None:
        writer = frame.writeStream.format("kafka").options(**self._with_servers(options))
        writer = writer.option("checkpointLocation", str(self.folder / checkpoint)).trigger(availableNow=True)
        writer.start().awaitTermination()

    def run(self, frame: DataFrame, name: str) -> None:
        """Appends what is there to a folder of Parquet files, and goes on from a checkpoint."""
        writer = frame.selectExpr("CAST(value AS STRING) value").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self.folder / f"{name}-checkpoint"))
        writer.trigger(availableNow=True).start(str(self.folder / name)).awaitTermination()

    def written(self, name: str) -> list[str]:
        return sorted(row["value"] for row in self.spark.read.parquet(str(self.folder / name)).collect())

    def records(self, topic: str) -> list[Any]:
        """All records of a topic, read without Spark: (partition, key, value, headers)."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "check",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        parts = [TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]
        count = sum(consumer.get_watermark_offsets(part, timeout=WAIT_S)[1] for part in parts)
        consumer.assign(parts)
        found = consumer.consume(count, WAIT_S) if count else []
        consumer.close()
        return sorted((each.partition(), each.key(), each.value(), each.headers()) for each in found)

    def _with_servers(self, options: dict[str, str]) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._servers, **options}


def values(frame: DataFrame) -> list[str]:
    return sorted(bytes(row["value"]).decode() for row in frame.select("value").collect())


def numbers(start: int, stop: int) -> list[str]:
    return [f"{number:04}" for number in range(start, stop)]


def batch(fixture: Fixture) -> None:
    fixture.create("batch")
    fixture.produce("batch", numbers(0, 500))
    fixture.produce("batch", numbers(500, 1000), partition=1)
    frame = fixture.read(subscribe="batch")
    check(frame.columns == COLUMNS, "a batch has Spark's columns")
    check(values(frame) == numbers(0, 1000), "a batch reads everything")
    first = frame.where("partition = 1 AND offset = 0").collect()
    check(
        [(bytes(row["key"]), bytes(row["value"]), row["topic"], row["timestampType"]) for row in first]
        == [(b"k0500", b"0500", "batch", 0)],
        "a record has its key, value, topic and kind of timestamp",
    )
    check(
        frame.selectExpr("unix_millis(min(timestamp)) AS at").collect() == [Row(at=YESTERDAY_MS)],
        "timestamps are the producer's",
    )
    between = fixture.read(
        subscribe="batch",
        startingOffsets=json.dumps({"batch": {"0": 100, "1": -2}}),
        endingOffsets=json.dumps({"batch": {"0": 200, "1": 10}}),
    )
    check(values(between) == numbers(100, 200) + numbers(500, 510), "a batch reads from offsets to offsets")
    split = fixture.read(subscribe="batch", minPartitions="6")
    check(split.rdd.getNumPartitions() >= 6 and split.count() == 1000, "minPartitions splits ranges")


def assignment(fixture: Fixture) -> None:
    only = fixture.read(assign=json.dumps({"batch": [1]}))
    check(values(only) == numbers(500, 1000), "assign reads the partitions it names")
    for name in ("pattern-a", "pattern-b"):
        fixture.create(name)
        fixture.produce(name, [name])
    found = fixture.read(subscribePattern="pattern-.*")
    check(values(found) == ["pattern-a", "pattern-b"], "subscribePattern finds topics in a batch")
    fixture.run(fixture.stream(subscribePattern="pattern-.*", startingOffsets="earliest"), "patterns")
    check(fixture.written("patterns") == ["pattern-a", "pattern-b"], "subscribePattern finds topics in a stream")
    fixture.create("pattern-c")
    fixture.produce("pattern-c", ["pattern-c"])
    fixture.run(fixture.stream(subscribePattern="pattern-.*", startingOffsets="earliest"), "patterns")
    check(fixture.written("patterns")[2:] == ["pattern-c"], "and a topic that came later, once")


def timestamps(fixture: Fixture) -> None:
    fixture.create("times")
    for hour in range(4):
        for partition in range(PARTITIONS):
            fixture.produce(
                "times", [f"{hour}-{partition}"], partition=partition, timestamp_ms=YESTERDAY_MS + hour * HOUR_MS
            )
    second, third = str(YESTERDAY_MS + HOUR_MS), str(YESTERDAY_MS + 2 * HOUR_MS)
    check(
        values(fixture.read(subscribe="times", startingTimestamp=third)) == ["2-0", "2-1", "3-0", "3-1"],
        "startingTimestamp starts at the first record of that time or later",
    )
    between = fixture.read(subscribe="times", startingTimestamp=second, endingTimestamp=third)
    check(values(between) == ["1-0", "1-1"], "endingTimestamp ends before that time")
    by_partition = {"0": int(second), "1": int(third)}
    started = fixture.read(subscribe="times", startingOffsetsByTimestamp=json.dumps({"times": by_partition}))
    check(values(started) == ["1-0", "2-0", "2-1", "3-0", "3-1"], "startingOffsetsByTimestamp is by partition")
    ended = fixture.read(subscribe="times", endingOffsetsByTimestamp=json.dumps({"times": by_partition}))
    check(values(ended) == ["0-0", "0-1", "1-1"], "endingOffsetsByTimestamp is by partition")
    fixture.run(fixture.stream(subscribe="times", startingTimestamp=third), "times-out")
    check(fixture.written("times-out") == ["2-0", "2-1", "3-0", "3-1"], "startingTimestamp starts a stream")
    late = str(YESTERDAY_MS + 24 * HOUR_MS)
    after_all = fixture.read(subscribe="times", startingTimestamp=late)
    check(refused(after_all.count, "No offset matched"), "a time after all records is an error")
    none = fixture.read(subscribe="times", startingTimestamp=late, startingOffsetsByTimestampStrategy="latest")
    check(none.count() == 0, "and is the end where the strategy says so")


def streaming(fixture: Fixture) -> None:
    fixture.create("stream")
    fixture.produce("stream", numbers(0, 300))
    fixture.produce("stream", numbers(300, 600), partition=1)
    options = {"subscribe": "stream", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "200"}
    fixture.run(fixture.stream(**options), "out")
    check(fixture.written("out") == numbers(0, 600), "AvailableNow reads everything in bounded batches")
    batches = len(list((fixture.folder / "out-checkpoint" / "commits").glob("[0-9]*")))
    check(batches >= 3, "maxOffsetsPerTrigger bounds a batch")
    fixture.run(fixture.stream(**options), "out")
    check(fixture.written("out") == numbers(0, 600), "a restart without news reads nothing again")
    fixture.produce("stream", numbers(600, 700), partition=1)
    fixture.run(fixture.stream(**options), "out")
    check(fixture.written("out") == numbers(0, 700), "a restart goes on from its checkpoint")


def headers(fixture: Fixture) -> None:
    fixture.create("headers")
    fixture.produce("headers", ["with"], headers=[("a", b"1"), ("a", b"2"), ("none", None)])
    fixture.produce("headers", ["without"])
    rows = fixture.read(subscribe="headers", includeHeaders="true").orderBy("offset").select("headers").collect()
    found = [(each["key"], each["value"] and bytes(each["value"])) for each in rows[0]["headers"]]
    check(found == [("a", b"1"), ("a", b"2"), ("none", None)], "headers come in order, with nulls")
    check(not rows[1]["headers"], "a record without headers has none")


def sink(fixture: Fixture) -> None:
    fixture.create("sink-a")
    fixture.create("sink-b")
    rows = fixture.spark.sql(
        "SELECT * FROM VALUES "
        "('sink-a', 0, 'k1', 'v1', array(named_struct('key', 'h', 'value', CAST('x' AS BINARY)))), "
        "('sink-b', 1, 'k2', 'v2', NULL), ('sink-b', 0, NULL, NULL, NULL) AS t(topic, partition, key, value, headers)"
    )
    fixture.write(rows, includeHeaders="true")
    check(
        fixture.records("sink-a") == [(0, b"k1", b"v1", [("h", b"x")])],
        "the sink writes topic, partition, key, headers",
    )
    check(
        [record[:3] for record in fixture.records("sink-b")] == [(0, None, None), (1, b"k2", b"v2")],
        "and nulls, and no headers",
    )
    fixture.create("sink-keys")
    keyed = fixture.spark.range(200).selectExpr("CAST(id AS STRING) key", "repeat('x', 1000) value")
    fixture.write(keyed, topic="sink-keys", **{"kafka.compression.type": "lz4"})
    spread = fixture.records("sink-keys")
    check(len({record[1] for record in spread}) == 200 == len(spread), "the option topic takes a whole DataFrame, once")
    check({record[0] for record in spread} == {0, 1}, "keys are spread over the partitions")
    fixture.create("sink-stream")
    copied = fixture.stream(subscribe="batch", startingOffsets="earliest").select("key", "value")
    fixture.write_stream(copied, "sink-checkpoint", topic="sink-stream")
    check(
        [r[2].decode() for r in sorted(fixture.records("sink-stream"), key=lambda r: r[2])] == numbers(0, 1000),
        "a stream is copied",
    )
    check(
        refused(lambda: fixture.write(rows.drop("value")), "Required attribute 'value' not found"),
        "a DataFrame without a value is refused",
    )


def losses(fixture: Fixture) -> None:
    fixture.create("lost")
    fixture.produce("lost", numbers(0, 100))
    fixture.run(fixture.stream(subscribe="lost", startingOffsets="earliest"), "lost-out")
    fixture.produce("lost", numbers(100, 200))
    fixture.delete_records("lost", 0, 150)
    options = {"subscribe": "lost", "startingOffsets": "earliest"}
    check(
        refused(lambda: fixture.run(fixture.stream(**options), "lost-out"), "failOnDataLoss"),
        "records that went unread are an error",
    )
    fixture.run(fixture.stream(**options, failOnDataLoss="false"), "lost-out")
    check(
        fixture.written("lost-out") == numbers(0, 100) + numbers(150, 200),
        "and are passed over with failOnDataLoss=false",
    )
    early = fixture.read(subscribe="lost", startingOffsets=json.dumps({"lost": {"0": 10, "1": 0}}))
    check(
        refused(early.count, "Could not read records in offset [10, 200)"),
        "a batch from an offset that is gone is an error",
    )
    missing = fixture.read(subscribe="no-such-topic")
    check(refused(missing.count, "UnknownTopicOrPartition"), "a topic that is not there is an error")


def refused(action: Callable[[], object], words: str) -> bool:
    """Whether it fails, and for the right reason."""
    try:
        action()
    except Exception as error:
        if words in str(error):
            return True
        raise
    return False


CHECKS = (batch, assignment, timestamps, streaming, headers, sink, losses)


def main() -> None:
    servers, jars, folder = sys.argv[1:]
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.jars": jars,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": 2,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
    }
    builder = SparkSession.builder.master("local[2]").appName("conformance")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with builder.getOrCreate() as spark:
        for each in CHECKS:
            each(Fixture(spark, servers, Path(folder)))
    print("all ok")


if __name__ == "__main__":
    main()
