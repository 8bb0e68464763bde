"""RemoveRaftVoter 0: decided by the leader of the quorum (KIP-853)."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.broker.forwarding import forward
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.remove_raft_voter import RemoveRaftVoterRequest


def handle(broker: Broker, exchange: Request, request: RemoveRaftVoterRequest) -> None:
    forward(broker, exchange, request)
