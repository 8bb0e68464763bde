"""Static members across broker crashes, lost responses and their own restarts: none is fenced.

Each instance id has one client at a time, so there is nobody whom FENCED_INSTANCE_ID could be meant for.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from barnabas.model.errors import ApiError, ErrorCode
from barnabas.sim.disk import Fault
from barnabas.wire.api.heartbeat import HeartbeatRequest
from barnabas.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.unit.runtime.group_kit import Kit
from tests.unit.storage.kit import small

INSTANCES = ("x", "y", None, "z")
STEPS = 150
SETTLING_ROUNDS = 100
START_OVER = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


class Client:
    """A consumer as librdkafka is one: it joins, syncs and beats, and asks again when an answer is lost."""

    def __init__(self, kit: Kit, instance: str | None, rng: random.Random) -> None:
        self.kit = kit
        self.instance = instance
        self.rng = rng
        self.restart()

    def restart(self) -> None:
        """The process is another one, which knows nothing."""
        self.member_id, self.generation, self.doing = "", -1, "join"
        self.assignment = b""
        self.assignments: list[SyncGroupRequestAssignment] = []
        self.answers: list[Any] | None = None

    def lose_connection(self) -> None:
        self.answers = None

    def step(self) -> None:
        if self.answers is None:
            self.answers = self.ask()
        elif self.answers:
            answer, self.answers = self.answers[0], None
            self.take(answer)

    def ask(self) -> list[Any]:
        if self.doing == "join":
            protocols = [JoinGroupRequestProtocol("range", b"")]
            message = JoinGroupRequest("g", 6000, 60_000, self.member_id, self.instance, "consumer", protocols)
            return self.kit.ask(message, self.rng.choice((5, 9)))
        if self.doing == "sync":
            sync = SyncGroupRequest("g", self.generation, self.member_id, self.instance, assignments=self.assignments)
            return self.kit.ask(sync, 3)
        return self.kit.ask(HeartbeatRequest("g", self.generation, self.member_id, self.instance), 3)

    def take(self, answer: Any) -> None:
        code = answer.code if isinstance(answer, ApiError) else ErrorCode(answer.error_code)
        assert code is not ErrorCode.FENCED_INSTANCE_ID, f"{self.instance} ({self.member_id}) in {self.doing}"
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif code in START_OVER:
            self.member_id, self.doing = "", "join"
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.doing = "join"
        elif code is ErrorCode.NONE and self.doing == "join":
            self.joined(answer)
        elif code is ErrorCode.NONE and self.doing == "sync":
            self.assignment, self.doing = answer.assignment, "beat"

    def joined(self, answer: Any) -> None:
        self.member_id, self.generation, self.doing = answer.member_id, answer.generation_id, "sync"
        leads = answer.leader == answer.member_id and not answer.skip_assignment
        ids = [member.member_id for member in answer.members] if leads else []
        self.assignments = [SyncGroupRequestAssignment(member_id, member_id.encode()) for member_id in ids]


def crash(kit: Kit, clients: list[Client]) -> None:
    """The process dies: what it wrote is there, and what it has not answered is lost."""
    kit.restart()
    for client in clients:
        if not client.answers:
            client.lose_connection()


def disturb(kit: Kit, clients: list[Client], rng: random.Random) -> None:
    match rng.randrange(20):
        case 0 | 1:
            crash(kit, clients)
        case 2:
            rng.choice(clients).restart()
        case 3 | 4:
            rng.choice(clients).lose_connection()
        case 5:
            kit.clock.wait(rng.randrange(7000))
        case 6:
            kit.disk.fail_next(Fault.ENOSPC)
            rng.choice(clients).step()
            kit.disk.heal()


@pytest.mark.parametrize("seed", range(200))
def test_a_client_that_is_alone_with_its_instance_id_is_never_fenced(seed: int) -> None:
    rng = random.Random(seed)
    kit = Kit(small(segment_bytes=1 << 20, flush_messages=1) if seed % 2 else None)
    clients = [Client(kit, instance, rng) for instance in INSTANCES]
    for _ in range(STEPS):
        disturb(kit, clients, rng)
        rng.choice(clients).step()
    crash(kit, clients)
    for _ in range(SETTLING_ROUNDS):
        for client in clients:
            client.step()
        kit.clock.wait(500)
    assert {(client.doing, client.generation) for client in clients} == {("beat", clients[0].generation)}
    assert all(client.assignment for client in clients)
