"""Two topics, or a topic and a table: what is missing, extra, different."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.sql import functions as f

from barnabas.spark.jobs.rows import WINDOW_OFFSETS, bounds_of_table
from barnabas.spark.tables.formats import open_readable
from barnabas.spark.tables.readable import Rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BY = ("offset", "key", "content")
"""What makes two records one: partition and offset; the key, of which the latest counts; or key and value, as often."""

COLUMNS = ["key", "value", "partition", "offset"]
ARROW = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("partition", pa.int32()), ("offset", pa.int64())])
SCHEMA = "key binary, value binary, partition int, offset long"


class Sample(NamedTuple):
    kind: str
    """missing, extra or different."""
    where: str
    left: bytes | None
    right: bytes | None


class Comparison(NamedTuple):
    by: str
    left: int
    right: int
    """Records, or keys, on each side."""
    missing: int
    """On the left and not on the right."""
    extra: int
    different: int
    samples: list[Sample]

    @property
    def same(self) -> bool:
        return not (self.missing or self.extra or self.different)


def compare(left: DataFrame, right: DataFrame, by: str, samples: int = 5) -> Comparison:
    """Both have the columns key, value, partition, offset."""
    return _by_content(left, right, samples) if by == "content" else _by_identity(left, right, by, samples)


def topic(spark: SparkSession, source: Mapping[str, str]) -> DataFrame:
    return spark.read.format("barnabas").options(**source).load().select(*COLUMNS)


def table(spark: SparkSession, options: Mapping[str, str], name: str) -> DataFrame:
    """The rows that a table has of a topic, read by the executors piece by piece."""
    with open_readable(options) as opened:
        bounds = bounds_of_table(opened, name)
    pieces = [
        (partition.topic, partition.partition, start, min(start + WINDOW_OFFSETS, end))
        for partition, (first, end) in bounds.items()
        for start in range(first, end, WINDOW_OFFSETS)
    ]
    listed = spark.createDataFrame(pieces, "topic string, partition int, start long, end long")
    given = dict(options)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with open_readable(given) as opened:
            for batch in batches:
                for piece in batch.to_pylist():
                    rows = Rows(piece["topic"], piece["partition"], piece["start"], piece["end"])
                    for found in opened.read(COLUMNS, rows):
                        yield found.select(COLUMNS).cast(ARROW)

    return listed.repartition(max(1, len(pieces))).mapInArrow(read, SCHEMA)


def _by_identity(left: DataFrame, right: DataFrame, by: str, samples: int) -> Comparison:
    one, other = _identified(left, by).alias("l"), _identified(right, by).alias("r")
    joined = one.join(other, f.col("l.id").eqNullSafe(f.col("r.id")), "full_outer").select(
        f.coalesce("l.id", "r.id").alias("id"),
        f.col("l.value").alias("left"),
        f.col("r.value").alias("right"),
        _kind().alias("kind"),
    )
    judged = joined.cache()
    try:
        counts = {row[0]: int(row[1]) for row in judged.groupBy("kind").count().collect()}
        worst = judged.filter(f.col("kind") != "same").orderBy("kind", "id").limit(samples).collect()
    finally:
        judged.unpersist()
    found = [Sample(row["kind"], _place(row["id"], by), _bytes(row["left"]), _bytes(row["right"])) for row in worst]
    missing, extra, different = (counts.get(kind, 0) for kind in ("missing", "extra", "different"))
    both = counts.get("same", 0) + different
    return Comparison(by, both + missing, both + extra, missing, extra, different, found)


def _kind() -> Column:
    same = f.col("l.value").eqNullSafe(f.col("r.value")) & f.col("l.key").eqNullSafe(f.col("r.key"))
    one_sided = f.when(f.col("r.present").isNull(), "missing").when(f.col("l.present").isNull(), "extra")
    return one_sided.when(~same, "different").otherwise("same")


def _identified(rows: DataFrame, by: str) -> DataFrame:
    """Each record by what it is known by: its offset, or its key, of which the latest counts."""
    if by == "offset":
        return rows.select(f.struct("partition", "offset").alias("id"), "key", "value", f.lit(True).alias("present"))
    latest = f.max_by(f.struct("value"), f.struct("offset", "partition"))
    last = rows.groupBy("key").agg(latest.alias("last"))
    return last.select(
        f.struct("key").alias("id"), "key", f.col("last.value").alias("value"), f.lit(True).alias("present")
    )


def _by_content(left: DataFrame, right: DataFrame, samples: int) -> Comparison:
    def counted(rows: DataFrame, name: str, other: str) -> DataFrame:
        one = rows.groupBy("key", "value").agg(f.count("*").alias(name))
        return one.withColumn(other, f.lit(0).cast("long")).select("key", "value", "l", "r")

    both = counted(left, "l", "r").unionByName(counted(right, "r", "l"))
    summed = both.groupBy("key", "value").agg(f.sum("l").alias("l"), f.sum("r").alias("r")).cache()
    missing, extra = _above(f.col("l"), f.col("r")), _above(f.col("r"), f.col("l"))
    try:
        totals = summed.agg(f.sum("l"), f.sum("r"), f.sum(missing), f.sum(extra)).collect()[0]
        worst = summed.filter(f.col("l") != f.col("r")).orderBy("key", "value").limit(samples).collect()
    finally:
        summed.unpersist()
    found = [_uneven(item["key"], _bytes(item["value"]), item["l"], item["r"]) for item in worst]
    left_count, right_count, short, over = (int(number or 0) for number in totals)
    return Comparison("content", left_count, right_count, short, over, 0, found)


def _uneven(key: Any, value: bytes | None, left: int, right: int) -> Sample:
    where = f"key {_shown(key)}, {left} and {right} times"
    return Sample("missing" if left > right else "extra", where, value if left else None, value if right else None)


def _above(one: Column, other: Column) -> Column:
    return f.greatest(one - other, f.lit(0))


def _place(identity: Any, by: str) -> str:
    if by == "offset":
        return f"partition {identity['partition']}, offset {identity['offset']}"
    return f"key {_shown(identity['key'])}"


def _shown(key: Any) -> str:
    return "null" if key is None else repr(bytes(key))[1:]


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
