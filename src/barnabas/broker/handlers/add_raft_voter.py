"""AddRaftVoter 0–1: decided by the leader of the quorum (KIP-853)."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.broker.forwarding import forward
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.add_raft_voter import AddRaftVoterRequest


def handle(broker: Broker, exchange: Request, request: AddRaftVoterRequest) -> None:
    forward(broker, exchange, request)
