"""AddRaftVoter 0–1: makes a node a voter of the quorum (KIP-853, KIP-1186)."""

from __future__ import annotations

from barnabas.controller.controller import Controller
from barnabas.runtime.pipeline import Request
from barnabas.wire.api.add_raft_voter import AddRaftVoterRequest


def handle(controller: Controller, request: Request, message: AddRaftVoterRequest) -> None:
    controller.driver.receive(message, request.reply)
