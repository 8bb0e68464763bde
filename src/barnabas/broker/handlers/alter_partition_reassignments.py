"""AlterPartitionReassignments 0–1: decided by the controller; moves partitions to other brokers (KIP-455, KIP-860)."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.broker.forwarding import forward
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.alter_partition_reassignments import AlterPartitionReassignmentsRequest


def handle(broker: Broker, exchange: Request, request: AlterPartitionReassignmentsRequest) -> None:
    forward(broker, exchange, request)
