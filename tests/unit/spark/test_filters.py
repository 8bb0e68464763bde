"""Filters of a batch query as ranges of offsets."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PySpark's own, of pandas
    from pyspark.sql import datasource as spark

from barnabas.client.wire.data import OffsetRange
from barnabas.model.ids import TopicPartition
from barnabas.spark.filters import earliest_time_ms, narrowed, understand

RANGES = [OffsetRange(TopicPartition(topic, number), 10, 20) for topic in ("orders", "payments") for number in (0, 1)]


def kept(*filters: Any) -> list[tuple[str, int, int, int]]:
    found = narrowed(RANGES, understand(filters).conditions)
    return [(*each.partition, each.start, each.stop) for each in found]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (spark.EqualTo(("topic",), "orders"), [("orders", 0), ("orders", 1)]),
        (spark.In(("topic",), ("payments", "x")), [("payments", 0), ("payments", 1)]),
        (spark.Not(spark.EqualTo(("topic",), "orders")), [("payments", 0), ("payments", 1)]),
        (spark.StringStartsWith(("topic",), "pay"), [("payments", 0), ("payments", 1)]),
        (spark.StringEndsWith(("topic",), "ers"), [("orders", 0), ("orders", 1)]),
        (spark.StringContains(("topic",), "rd"), [("orders", 0), ("orders", 1)]),
        (spark.GreaterThan(("topic",), "orders"), [("payments", 0), ("payments", 1)]),
        (spark.EqualTo(("partition",), 1), [("orders", 1), ("payments", 1)]),
        (spark.LessThan(("partition",), 1), [("orders", 0), ("payments", 0)]),
        (spark.GreaterThanOrEqual(("partition",), 2), []),
        (spark.Not(spark.In(("partition",), (0,))), [("orders", 1), ("payments", 1)]),
    ],
)
def test_topics_and_partitions_are_chosen_exactly(given: Any, expected: list[tuple[str, int]]) -> None:
    assert [place[:2] for place in kept(given)] == expected
    assert understand([given]).left == []


@pytest.mark.parametrize(
    ("given", "start", "stop"),
    [
        (spark.EqualTo(("offset",), 12), 12, 13),
        (spark.EqualNullSafe(("offset",), 12), 12, 13),
        (spark.LessThan(("offset",), 12), 10, 12),
        (spark.LessThanOrEqual(("offset",), 12), 10, 13),
        (spark.GreaterThan(("offset",), 12), 13, 20),
        (spark.GreaterThanOrEqual(("offset",), 12), 12, 20),
        (spark.Not(spark.GreaterThan(("offset",), 12)), 10, 13),
        (spark.Not(spark.LessThan(("offset",), 12)), 12, 20),
    ],
)
def test_offsets_are_cut_exactly(given: Any, start: int, stop: int) -> None:
    assert {place[2:] for place in kept(given)} == {(start, stop)}
    assert understand([given]).left == []


def test_a_list_of_offsets_narrows_but_is_left_to_spark() -> None:
    given = spark.In(("offset",), (14, 12, 17))
    assert {place[2:] for place in kept(given)} == {(12, 18)}
    assert understand([given]).left == [given]


def test_offsets_that_are_not_wanted_are_left_to_spark() -> None:
    given = spark.Not(spark.EqualTo(("offset",), 12))
    assert {place[2:] for place in kept(given)} == {(10, 20)}
    assert understand([given]).left == [given]


def test_conditions_are_joined() -> None:
    assert kept(
        spark.EqualTo(("topic",), "orders"), spark.EqualTo(("partition",), 0), spark.GreaterThan(("offset",), 17)
    ) == [("orders", 0, 18, 20)]
    assert kept(spark.GreaterThan(("offset",), 100)) == []


def test_what_every_row_fulfils_is_done_with() -> None:
    assert understand([spark.IsNotNull((name,)) for name in ("topic", "partition", "offset", "timestamp")]).left == []


@pytest.mark.parametrize(
    "given",
    [
        spark.IsNotNull(("key",)),
        spark.EqualTo(("value",), b"x"),
        spark.EqualTo(("timestampType",), 0),
        spark.EqualNullSafe(("offset",), None),
        spark.EqualTo(("headers", "key"), "x"),
        spark.IsNull(("topic",)),
        spark.In(("partition",), (0, None)),
    ],
)
def test_what_is_not_understood_is_left_to_spark(given: Any) -> None:
    assert understand([given]).left == [given]
    assert len(kept(given)) == 4


NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp()) * 1000


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (spark.GreaterThanOrEqual(("timestamp",), NOON), NOON_MS),
        (spark.GreaterThan(("timestamp",), NOON), NOON_MS + 1),
        (spark.EqualTo(("timestamp",), NOON), NOON_MS),
        (spark.GreaterThanOrEqual(("timestamp",), NOON + timedelta(microseconds=1)), NOON_MS + 1),
        (spark.GreaterThan(("timestamp",), NOON + timedelta(microseconds=1)), NOON_MS + 1),
        (spark.GreaterThanOrEqual(("timestamp",), NOON.astimezone(timezone(timedelta(hours=2)))), NOON_MS),
        (spark.Not(spark.LessThan(("timestamp",), NOON)), NOON_MS),
        (spark.LessThan(("timestamp",), NOON), None),
        (spark.Not(spark.EqualTo(("timestamp",), NOON)), None),
    ],
)
def test_a_time_says_where_to_start_and_is_left_to_spark(given: Any, expected: int | None) -> None:
    understood = understand([given])
    assert earliest_time_ms(understood.conditions) == expected
    assert understood.left == [given]
    assert len(narrowed(RANGES, understood.conditions)) == 4
