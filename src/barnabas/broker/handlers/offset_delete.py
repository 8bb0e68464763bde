"""OffsetDelete 0: takes committed offsets away, of topics that the group does not read (KIP-496)."""

from __future__ import annotations

from barnabas.broker.context import Broker, Request
from barnabas.broker.grouping import ask
from barnabas.wire.api.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse


def handle(broker: Broker, exchange: Request, request: OffsetDeleteRequest) -> None:
    ask(broker, exchange, request.group_id, request, lambda problem: OffsetDeleteResponse(error_code=problem.code))
