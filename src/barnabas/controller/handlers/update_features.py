"""UpdateFeatures 0–2: finalizes feature levels (KIP-584, KIP-778)."""

from __future__ import annotations

from barnabas.controller.controller import Controller
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.update_features import UpdateFeaturesRequest


def handle(controller: Controller, request: Request, message: UpdateFeaturesRequest) -> None:
    controller.answer(request, message)
