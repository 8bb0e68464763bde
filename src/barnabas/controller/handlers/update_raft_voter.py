"""UpdateRaftVoter 0: new endpoints of a voter of the quorum (KIP-853)."""

from __future__ import annotations

from barnabas.controller.controller import Controller
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.update_raft_voter import UpdateRaftVoterRequest


def handle(controller: Controller, request: Request, message: UpdateRaftVoterRequest) -> None:
    controller.driver.receive(message, request.reply)
