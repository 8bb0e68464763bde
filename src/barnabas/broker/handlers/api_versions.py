"""ApiVersions 0–4: what this broker serves, and the features of the cluster (KIP-511, KIP-584).

An unknown version is answered in version 0 with UNSUPPORTED_VERSION and the range that is known.
"""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.runtime.api_versions import describe
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse


def handle(broker: Broker, exchange: Request, request: ApiVersionsRequest | None) -> ApiVersionsResponse:
    return describe(exchange, request, broker.served(), broker.image)
