"""DescribeMetrics: the counters of a broker's request pipeline. An API of Barnabas, not of Kafka."""

from barnabas.wire.schema import EMPTY, Message, Struct, int16, int32, int64


class DescribeMetricsRequest(Message):
    api_key = 10000
    versions = "0"
    flexible = "0+"
    served_by = ("broker",)

    api_keys: list[int16] | None = None
    """None asks for every API; keys that the broker does not serve are left out of the response."""


class ErrorCount(Struct):
    code: int16 = 0
    """Not called ``error_code``: it is not an error of this response, and must not be counted as one."""
    count: int64 = 0


class ApiMetrics(Struct):
    """Of one API, since the broker started."""

    api_key: int16 = 0
    name: str = ""
    requests: int64 = 0
    refused: int64 = 0
    """Requests that could not be decoded or were not allowed on their connection."""
    errors: list[ErrorCount] = EMPTY
    bytes_in: int64 = 0
    bytes_out: int64 = 0
    handled_ns: int64 = 0
    parked_ns: int64 = 0
    """Between the end of a handler and a reply that came later."""
    throttled_ms: int64 = 0


class DescribeMetricsResponse(Message):
    api_key = 10000
    versions = "0"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    apis: list[ApiMetrics] = EMPTY
