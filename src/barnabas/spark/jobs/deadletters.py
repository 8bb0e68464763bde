"""Dead letters looked at again: what can be decoded now goes back to its topic, the rest stays, with one more attempt.

Where the job has been is kept as the offsets of a consumer group, so each letter is taken up once. One that still
cannot be decoded is written to the end of the dead-letter topic again. All that a run writes becomes visible together
with its place in the letters: a job that dies on the way has written nothing, or the next run goes on behind it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as f

from barnabas.client.wire import Client
from barnabas.client.wire.admin import EARLIEST, LATEST, list_offsets
from barnabas.client.wire.groups import commit_offsets, committed_offsets
from barnabas.model.ids import TopicPartition
from barnabas.spark.exactly_once.commit import Committer
from barnabas.spark.exactly_once.decision import SourceOffsets, read_decision
from barnabas.spark.values import ORIGIN_HEADERS, REASON_HEADER, from_avro, from_json_checked

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SOURCE = "source"
ATTEMPTS_HEADER = "barnabas.attempts"
SHOWN_REASONS = 10


class Validation(NamedTuple):
    format: str
    """json (a schema in Spark's DDL) or avro (a schema in JSON)."""
    schema: str
    framing: str = "none"
    writer_schemas: Mapping[int, str] | None = None
    """Of framed values: the schemas that wrote them, by id."""


class Redrive(NamedTuple):
    servers: str
    letters: str
    """The dead-letter topic."""
    to: str | None
    """None sends each letter to the topic it came from, which its headers name."""
    validation: Validation
    group: str
    dry_run: bool = False
    drop: bool = False
    """Letters that still cannot be decoded are not kept."""


class Redriven(NamedTuple):
    read: int
    good: int
    bad: int
    reasons: list[tuple[str, int]]


def redrive(spark: SparkSession, client: Client, job: Redrive) -> Redriven:
    decided = read_decision(client, job.group) if job.dry_run else Committer(client, job.group).recover()
    starts, ends = _span(client, job, decided.offsets if decided is not None else {})
    if all(starts[partition] >= end for partition, end in ends.items()):
        return Redriven(0, 0, 0, [])
    letters = _letters(spark, job, starts, ends).withColumn("decoded", _decoded(job.validation)).cache()
    try:
        error = f.col("decoded")["error"]
        counts = {row[0]: int(row[1]) for row in letters.groupBy(error.isNull()).count().collect()}
        reasons = letters.filter(error.isNotNull()).groupBy(error.alias("reason")).count()
        shown = [(row[0], int(row[1])) for row in reasons.orderBy(f.desc("count")).limit(SHOWN_REASONS).collect()]
        if not job.dry_run:
            rows = _sent(letters.filter(error.isNull()), job)
            if not job.drop:
                rows = rows.unionByName(_kept(letters.filter(error.isNotNull()).withColumn("error", error), job))
            _write(rows, job, decided.batch + 1 if decided is not None else 0)
            commit_offsets(client, job.group, ends)
    finally:
        letters.unpersist()
    return Redriven(sum(counts.values()), counts.get(True, 0), counts.get(False, 0), shown)


def _span(
    client: Client, job: Redrive, written: SourceOffsets
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    partitions = [TopicPartition(job.letters, number) for number in sorted(client.topic(job.letters).partitions)]
    first = list_offsets(client, dict.fromkeys(partitions, EARLIEST))
    last = list_offsets(client, dict.fromkeys(partitions, LATEST), read_committed=True)
    done = committed_offsets(client, job.group)
    starts = {p: max(first[p].offset, done[p].offset if p in done else 0, written.get(p, 0)) for p in partitions}
    return starts, {p: last[p].offset for p in partitions}


def _letters(
    spark: SparkSession, job: Redrive, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> DataFrame:
    reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", job.servers)
    reader = reader.option("assign", json.dumps({job.letters: [p.partition for p in ends]}))
    for name, offsets in (("startingOffsets", starts), ("endingOffsets", ends)):
        reader = reader.option(name, json.dumps({job.letters: {str(p.partition): o for p, o in offsets.items()}}))
    reader = reader.option("includeHeaders", "true").option("kafka.isolation.level", "read_committed")
    return reader.load().select("key", "value", "headers", f.struct("topic", "partition", "offset").alias(SOURCE))


def _decoded(validation: Validation) -> Column:
    if validation.format == "avro":
        return from_avro(
            "value",
            validation.schema,
            mode="deadletter",
            framing=validation.framing,
            writer_schemas=validation.writer_schemas,
        )
    return from_json_checked("value", validation.schema, mode="deadletter")


def _sent(letters: DataFrame, job: Redrive) -> DataFrame:
    added = [REASON_HEADER, ATTEMPTS_HEADER, *ORIGIN_HEADERS.values()]
    topic = f.lit(job.to) if job.to else _header_text(ORIGIN_HEADERS["topic"])
    headers = f.filter("headers", lambda h: ~h["key"].isin(added))
    return letters.select("key", "value", headers.alias("headers"), topic.alias("topic"), SOURCE)


def _kept(letters: DataFrame, job: Redrive) -> DataFrame:
    attempts = f.coalesce(_header_text(ATTEMPTS_HEADER).cast("int"), f.lit(1)) + 1
    news = f.array(
        f.struct(f.lit(REASON_HEADER).alias("key"), f.col("error").cast("binary").alias("value")),
        f.struct(f.lit(ATTEMPTS_HEADER).alias("key"), attempts.cast("string").cast("binary").alias("value")),
    )
    others = f.filter("headers", lambda h: ~h["key"].isin(REASON_HEADER, ATTEMPTS_HEADER))
    kept = f.concat(f.coalesce(others, f.array().cast("array<struct<key: string, value: binary>>")), news)
    return letters.select("key", "value", kept.alias("headers"), f.lit(job.letters).alias("topic"), SOURCE)


def _header_text(name: str) -> Column:
    found = f.filter("headers", lambda h: h["key"] == name)
    return f.try_element_at(f.transform(found, lambda h: h["value"].cast("string")), f.lit(-1))


def _write(rows: DataFrame, job: Redrive, number: int) -> None:
    options = {
        "kafka.bootstrap.servers": job.servers,
        "includeHeaders": "true",
        "deliveryMode": "exactly-once",
        "applicationId": job.group,
        "batchId": str(number),
        "sourceColumn": SOURCE,
    }
    rows.write.format("barnabas").options(**options).mode("append").save()
