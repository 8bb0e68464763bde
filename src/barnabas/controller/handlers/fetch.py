"""Fetch 12–18: the metadata log, for voters, observers and brokers (KIP-595).

A fetch at the end of the log is parked until there are records or the high watermark has moved.
"""

from __future__ import annotations

from barnabas.controller.controller import Controller
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.fetch import FetchRequest


def handle(controller: Controller, request: Request, message: FetchRequest) -> None:
    request.abandoned = controller.driver.receive(message, request.reply).cancel
