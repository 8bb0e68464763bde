"""ListPartitionReassignments 0: decided by the controller; the moves that are under way (KIP-455)."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.broker.forwarding import forward
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.list_partition_reassignments import ListPartitionReassignmentsRequest


def handle(broker: Broker, exchange: Request, request: ListPartitionReassignmentsRequest) -> None:
    forward(broker, exchange, request)
