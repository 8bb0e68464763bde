"""The ApiVersions response, the same for broker and controller."""

from __future__ import annotations

import re

from barnabas.core.metadata.features import HANDLED_FEATURES
from barnabas.core.metadata.image import MetadataImage
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


def describe(
    request: Request, message: ApiVersionsRequest | None, served: list[tuple[int, int, int]], image: MetadataImage
) -> ApiVersionsResponse:
    """``message`` is None where the client asked with a version that is not known."""
    if message is None:
        own = [ApiVersion(key, low, high) for key, low, high in served if key == ApiVersionsRequest.api_key]
        return ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, own)
    if request.version >= 3:
        if not (
            _SOFTWARE.fullmatch(message.client_software_name) and _SOFTWARE.fullmatch(message.client_software_version)
        ):
            return ApiVersionsResponse(ErrorCode.INVALID_REQUEST)
        request.introduce(message.client_software_name, message.client_software_version)
    finalized = image.features
    return ApiVersionsResponse(
        api_keys=[ApiVersion(key, low, high) for key, low, high in served],
        supported_features=[
            SupportedFeatureKey(name, low, high)
            for name, (low, high) in HANDLED_FEATURES.items()
            if low > 0 or request.version >= 4  # version 3 clients choke on a lowest level of 0 (KIP-1022)
        ],
        finalized_features_epoch=image.next_offset - 1,
        finalized_features=[
            FinalizedFeatureKey(name, finalized[name], finalized[name])
            for name in HANDLED_FEATURES
            if name in finalized
        ],
    )
