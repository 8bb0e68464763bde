"""How far a query is behind, from what Spark reports of its sources."""

from __future__ import annotations

from typing import Any

from barnabas.spark.lag import lag_of, offsets_behind_latest

END = '{"t": {"0": 5, "1": 7}, "~": {"topics": {}}}'
LATEST = '{"t": {"0": 9, "1": 7, "2": 3}}'


def source(end: Any, latest: Any) -> dict[str, Any]:
    return {"endOffset": end, "latestOffset": latest}


def test_metrics_are_those_of_sparks_kafka_source() -> None:
    assert offsets_behind_latest(source(END, LATEST)) == {
        "minOffsetsBehindLatest": 0,
        "maxOffsetsBehindLatest": 4,
        "avgOffsetsBehindLatest": 7 / 3,
    }
    assert offsets_behind_latest(source({"t": {"0": 5}}, {"t": {"0": 9}}))["maxOffsetsBehindLatest"] == 4


def test_lag() -> None:
    assert lag_of(source(END, LATEST)) == 7


def test_sources_of_others_have_none() -> None:
    for end, latest in (("12", "15"), (None, None), (12, 15)):
        assert offsets_behind_latest(source(end, latest)) == {}
        assert lag_of(source(end, latest)) is None
