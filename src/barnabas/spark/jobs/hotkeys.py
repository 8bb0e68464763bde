"""Which keys a topic is full of, and how unevenly its partitions are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class HotKey(NamedTuple):
    key: bytes | None
    messages: int
    size: int
    """Bytes of keys and values."""
    share: float
    """Of all messages."""
    partitions: int
    """In how many partitions it is: more than one breaks the order of its messages."""


class Load(NamedTuple):
    partition: int
    messages: int
    size: int
    keys: int


class HotKeys(NamedTuple):
    messages: int
    keys: int
    hottest: list[HotKey]
    partitions: list[Load]

    @property
    def skew(self) -> float:
        """The fullest partition, in times of the mean; 1 where all are alike."""
        counts = [load.messages for load in self.partitions]
        return max(counts) * len(counts) / sum(counts) if counts and sum(counts) else 1.0


def hotkeys(spark: SparkSession, source: Mapping[str, str], top: int = 20) -> HotKeys:
    """``source`` are options of the batch source: servers, topic, and the span that is looked at."""
    rows = spark.read.format("barnabas").options(**source).load()
    size = f.coalesce(f.length("key"), f.lit(0)) + f.coalesce(f.length("value"), f.lit(0))
    by_key = rows.groupBy("key", "partition").agg(f.count("*").alias("n"), f.sum(size).alias("size")).cache()
    try:
        return _measured(by_key, top)
    finally:
        by_key.unpersist()


def _measured(by_key: DataFrame, top: int) -> HotKeys:
    loads = by_key.groupBy("partition").agg(f.sum("n"), f.sum("size"), f.count("*")).orderBy("partition").collect()
    partitions = [Load(row[0], int(row[1]), int(row[2]), row[3]) for row in loads]
    total = sum(load.messages for load in partitions)
    keys = by_key.groupBy("key").agg(f.sum("n").alias("n"), f.sum("size").alias("size"), f.count("*").alias("spread"))
    hottest = keys.orderBy(f.desc("n"), f.asc("key")).limit(top).collect()
    found = [
        HotKey(None if row[0] is None else bytes(row[0]), int(row[1]), int(row[2]), int(row[1]) / total, row[3])
        for row in hottest
    ]
    return HotKeys(total, keys.count(), found, partitions)
