"""DescribeMetrics 0: the counters of the request pipeline, by API. Barnabas's own API."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.runtime.pipeline import Api, Request
from barnabas.wire.api.describe_metrics import ApiMetrics, DescribeMetricsRequest, DescribeMetricsResponse, ErrorCount


def handle(broker: Broker, exchange: Request, request: DescribeMetricsRequest) -> DescribeMetricsResponse:
    apis = broker.apis()
    keys = sorted(apis if request.api_keys is None else apis.keys() & set(request.api_keys))
    return DescribeMetricsResponse(apis=[_metrics(apis[key]) for key in keys])


def _metrics(api: Api) -> ApiMetrics:
    counters = api.counters
    return ApiMetrics(
        api_key=api.key,
        name=api.name,
        requests=counters.requests,
        refused=counters.refused,
        errors=[ErrorCount(code, count) for code, count in sorted(counters.errors.items())],
        bytes_in=counters.bytes_in,
        bytes_out=counters.bytes_out,
        handled_ns=counters.handled_ns,
        parked_ns=counters.parked_ns,
        throttled_ms=counters.throttled_ms,
    )
