"""ApiVersions 0–4: what this controller serves, and the features of the cluster (KIP-511, KIP-584, KIP-919)."""

from __future__ import annotations

from barnabas.controller import apis
from barnabas.controller.controller import Controller
from barnabas.runtime.api_versions import describe
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse


def handle(controller: Controller, request: Request, message: ApiVersionsRequest | None) -> ApiVersionsResponse:
    return describe(request, message, apis.advertised(), controller.committed)
