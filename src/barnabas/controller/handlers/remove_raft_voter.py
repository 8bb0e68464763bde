"""RemoveRaftVoter 0: a node is no voter of the quorum any more (KIP-853)."""

from __future__ import annotations

from barnabas.controller.controller import Controller
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.remove_raft_voter import RemoveRaftVoterRequest


def handle(controller: Controller, request: Request, message: RemoveRaftVoterRequest) -> None:
    controller.driver.receive(message, request.reply)
