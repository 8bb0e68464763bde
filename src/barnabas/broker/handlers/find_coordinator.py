"""FindCoordinator 0–6: no coordinators yet, and clients are told so (KIP-699 from version 4).

It is served before groups and transactions are because librdkafka takes its presence as the sign that a broker
understands lz4, and silently stops compressing without it. librdkafka also asks for a coordinator when partitions are
assigned by hand: only the answer "not available" leaves such a consumer in peace.
"""

from __future__ import annotations

from barnabas.broker.context import Broker, Request
from barnabas.model.errors import ErrorCode
from barnabas.wire.api.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

REASON = "Consumer groups and transactions are not served by this version of Barnabas: assign partitions instead."


def handle(broker: Broker, exchange: Request, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if exchange.version < 4:
        return FindCoordinatorResponse(error_code=code, error_message=REASON, node_id=-1, host="", port=-1)
    coordinators = [Coordinator(key, -1, "", -1, code, REASON) for key in request.coordinator_keys]
    return FindCoordinatorResponse(coordinators=coordinators)
