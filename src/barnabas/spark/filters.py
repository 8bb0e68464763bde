"""Conditions on topic, partition, offset and timestamp, made ranges of offsets.

A condition is done with where the ranges hold exactly the rows that it lets through. Times are never: records need not
be in the order of their times. All that can be said is that before the first record of a time or later, as the broker
finds it, there is none: reading starts there, and Spark looks at every row.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pyspark.sql import datasource as spark_filters
from pyspark.sql.datasource import Filter

from barnabas.client.wire.data import OffsetRange

COLUMNS = frozenset({"topic", "partition", "offset", "timestamp"})

_OPERATORS: dict[type[Filter], str] = {
    spark_filters.EqualTo: "=",
    spark_filters.EqualNullSafe: "=",
    spark_filters.LessThan: "<",
    spark_filters.LessThanOrEqual: "<=",
    spark_filters.GreaterThan: ">",
    spark_filters.GreaterThanOrEqual: ">=",
    spark_filters.In: "in",
    spark_filters.StringStartsWith: "starts with",
    spark_filters.StringEndsWith: "ends with",
    spark_filters.StringContains: "contains",
}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda value, wanted: value in wanted,
    "starts with": str.startswith,
    "ends with": str.endswith,
    "contains": operator.contains,
}
_OPPOSITES = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


class Condition(NamedTuple):
    column: str
    operator: str
    value: object
    is_negated: bool = False


class Understood(NamedTuple):
    conditions: list[Condition]
    """What narrows the ranges."""
    left: list[Filter]
    """What Spark has to look at all the same."""


def understand(filters: Iterable[Filter]) -> Understood:
    conditions: list[Condition] = []
    left: list[Filter] = []
    for given in filters:
        if isinstance(given, spark_filters.IsNotNull) and given.attribute[0] in COLUMNS:
            continue
        condition = _condition(given)
        if condition is None or not _is_exact(condition):
            left.append(given)
        if condition is not None:
            conditions.append(condition)
    return Understood(conditions, left)


def _condition(given: Filter, is_negated: bool = False) -> Condition | None:
    if isinstance(given, spark_filters.Not):
        return None if is_negated else _condition(given.child, True)
    operator = _OPERATORS.get(type(given))
    attribute: tuple[str, ...] = getattr(given, "attribute", ())
    if operator is None or len(attribute) != 1 or attribute[0] not in COLUMNS:
        return None
    value = given.value  # type: ignore[attr-defined]
    if not _has_type_of(attribute[0], operator, value):
        return None
    if is_negated and operator in _OPPOSITES:
        return Condition(attribute[0], _OPPOSITES[operator], value)
    return Condition(attribute[0], operator, value, is_negated)


def _has_type_of(column: str, operator: str, value: object) -> bool:
    kind = {"topic": str, "timestamp": datetime}.get(column, int)
    values = value if operator == "in" and isinstance(value, (tuple, list)) else [value]
    return all(isinstance(each, kind) and not isinstance(each, bool) for each in values)


def _is_exact(condition: Condition) -> bool:
    """A row of a range is let through by these, and a row outside is not."""
    if condition.column == "offset":
        return not condition.is_negated and condition.operator != "in"
    return condition.column != "timestamp"


def narrowed(ranges: Iterable[OffsetRange], conditions: Iterable[Condition]) -> list[OffsetRange]:
    """The parts of ranges in which rows can be that all conditions let through."""
    found = list(ranges)
    for condition in conditions:
        if condition.column == "topic":
            found = [each for each in found if holds(condition, each.partition.topic)]
        elif condition.column == "partition":
            found = [each for each in found if holds(condition, each.partition.partition)]
        elif condition.column == "offset" and not condition.is_negated:
            found = [_cut(each, condition) for each in found]
    return [each for each in found if each.size > 0]


def earliest_time_ms(conditions: Iterable[Condition]) -> int | None:
    """No row that all conditions let through is older."""
    times = [
        _milliseconds(each.value, is_after=each.operator == ">")
        for each in conditions
        if isinstance(each.value, datetime) and each.operator in ("=", ">", ">=") and not each.is_negated
    ]
    return max(times, default=None)


def _milliseconds(time: datetime, *, is_after: bool) -> int:
    """Kafka's times are whole milliseconds: the first that is not before ``time``, or that is after it."""
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    microseconds = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return microseconds // 1000 + 1 if is_after else -(-microseconds // 1000)


def holds(condition: Condition, value: str | int) -> bool:
    return _compares(condition.operator, value, condition.value) is not condition.is_negated


def _compares(how: str, value: str | int, wanted: object) -> bool:
    """Spark orders strings by their bytes, and so does Python where all of them are code points of one byte."""
    if how != "in" and isinstance(value, str) is not isinstance(wanted, str):
        return True
    return bool(_COMPARISONS[how](value, wanted))


def _cut(given: OffsetRange, condition: Condition) -> OffsetRange:
    start, stop = given.start, given.stop
    values = condition.value if isinstance(condition.value, (tuple, list)) else [condition.value]
    least, most = min(values, default=stop), max(values, default=start - 1)
    if condition.operator in ("=", "in", ">=", ">"):
        start = max(start, least + (condition.operator == ">"))
    if condition.operator in ("=", "in", "<=", "<"):
        stop = min(stop, most + (condition.operator != "<"))
    return given._replace(start=start, stop=max(start, stop))
