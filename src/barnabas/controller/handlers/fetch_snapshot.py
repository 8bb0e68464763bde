"""FetchSnapshot 0–1: a part of the latest snapshot of the metadata log (KIP-630, KIP-853)."""

from __future__ import annotations

from barnabas.controller.controller import Controller
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.fetch_snapshot import FetchSnapshotRequest


def handle(controller: Controller, request: Request, message: FetchSnapshotRequest) -> None:
    controller.driver.receive(message, request.reply)
