"""The counters of a Barnabas broker. Other brokers of Kafka's protocol do not serve them."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.client.wire.client import Client
from barnabas.client.wire.errors import BrokerUnavailable, UnsupportedApi, check
from barnabas.wire.api.describe_metrics import ApiMetrics, DescribeMetricsRequest, DescribeMetricsResponse

VERSION = 0
"""Brokers do not advertise the API, so there is nothing to negotiate."""


def describe_metrics(
    client: Client, api_keys: Sequence[int] | None = None, *, node_id: int | None = None
) -> list[ApiMetrics]:
    """The counters of a broker, by API; of whichever answers, and of all APIs, for None.

    Raises UnsupportedApi where the broker closes the connection, as Kafka does for API keys that it does not know.
    """
    connection = client.any_node() if node_id is None else client.node(node_id)
    request = DescribeMetricsRequest(api_keys=None if api_keys is None else list(api_keys))
    try:
        reply = connection.request(request, DescribeMetricsResponse, version=VERSION)
    except BrokerUnavailable as error:
        if not isinstance(error.__cause__, ConnectionError):
            raise
        raise UnsupportedApi(f"the broker at {connection.address} does not serve Barnabas's metrics") from error
    check(reply.error_code, str(connection.address))
    return reply.apis
