"""The counters that DescribeMetrics answers with."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker import apis
from barnabas.broker.handlers import describe_metrics
from barnabas.model.errors import ErrorCode
from barnabas.runtime.pipeline import Api
from barnabas.wire.api.describe_metrics import ApiMetrics, DescribeMetricsRequest, ErrorCount
from barnabas.wire.catalogue import OWN_APIS
from barnabas.wire.error_codes import errors_in


@pytest.fixture
def broker() -> Any:
    stand_in: Any = SimpleNamespace()
    table: Mapping[int, Api] = apis.table(stand_in)
    stand_in.apis = lambda: table
    return stand_in


def ask(broker: Any, api_keys: list[int] | None = None) -> dict[str, ApiMetrics]:
    exchange: Any = None
    response = describe_metrics.handle(broker, exchange, DescribeMetricsRequest(api_keys=api_keys))
    return {api.name: api for api in response.apis}


def test_every_counter_of_an_api_is_described(broker: Any) -> None:
    counters = broker.apis()[1].counters
    for number, name in enumerate(sorted(set(counters.__slots__) - {"errors"}), start=1):
        setattr(counters, name, number * 10**10)
    counters.count_errors([3, 6, 3])
    found = ask(broker)["Fetch"]
    for name in set(counters.__slots__) - {"errors"}:
        assert getattr(found, name) == getattr(counters, name) > 0
    assert found.errors == [ErrorCount(3, 2), ErrorCount(6, 1)]


def test_all_apis_or_those_that_are_asked_for(broker: Any) -> None:
    assert [api.api_key for api in ask(broker).values()] == sorted(broker.apis())
    assert list(ask(broker, [3, 0, 3, 999])) == ["Produce", "Metadata"]
    assert ask(broker, []) == {}


def test_counts_of_errors_are_not_errors_of_the_response(broker: Any) -> None:
    broker.apis()[1].counters.count_errors([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
    exchange: Any = None
    assert errors_in(describe_metrics.handle(broker, exchange, DescribeMetricsRequest())) == []


def test_own_apis_are_served_and_not_advertised(broker: Any) -> None:
    assert {api.key for api in apis.OWN} == set(OWN_APIS)
    assert set(OWN_APIS) <= set(broker.apis())
    assert not set(OWN_APIS) & {key for key, _, _ in apis.advertised()}
