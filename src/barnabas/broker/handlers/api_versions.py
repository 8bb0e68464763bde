"""ApiVersions 0–4: what this broker serves, and the features of the cluster (KIP-511, KIP-584).

An unknown version is answered in version 0 with UNSUPPORTED_VERSION and the range that is known.
"""

from __future__ import annotations

import re

from barnabas.broker.context import Broker
from barnabas.broker.features import HANDLED_FEATURES
from barnabas.model.errors import ErrorCode
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(broker: Broker, exchange: Request, request: ApiVersionsRequest | None) -> ApiVersionsResponse:
    if request is None:
        own = [ApiVersion(key, low, high) for key, low, high in broker.served() if key == ApiVersionsRequest.api_key]
        return ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, own)
    if exchange.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(ErrorCode.INVALID_REQUEST)
    if exchange.version >= 3:
        exchange.introduce(request.client_software_name, request.client_software_version)
    finalized = broker.image.features
    return ApiVersionsResponse(
        api_keys=[ApiVersion(key, low, high) for key, low, high in broker.served()],
        supported_features=[
            SupportedFeatureKey(name, low, high)
            for name, (low, high) in HANDLED_FEATURES.items()
            if low > 0 or exchange.version >= 4  # version 3 clients choke on a lowest level of 0 (KIP-1022)
        ],
        finalized_features_epoch=broker.image.next_offset - 1,
        finalized_features=[
            FinalizedFeatureKey(name, finalized[name], finalized[name])
            for name in HANDLED_FEATURES
            if name in finalized
        ],
    )
