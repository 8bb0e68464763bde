"""Drives a group machine as clients would. The invariants are in ``test_group_machine``."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from barnabas.core.group import records as framing
from barnabas.core.group.classic import ClassicGroup, State
from barnabas.core.group.machine import GroupMachine, Tick
from barnabas.core.group.turn import GroupPolicy, GroupRequest
from barnabas.model.errors import ErrorCode
from barnabas.wire.api.heartbeat import HeartbeatResponse
from barnabas.wire.api.join_group import JoinGroupResponse
from barnabas.wire.api.sync_group import SyncGroupResponse
from barnabas.wire.schema import Message

GROUP = "g"
JOINING = (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED)


@dataclass
class Client:
    """What a client believes."""

    member_id: str = ""
    generation: int = -1
    leads: tuple[str, ...] = ()
    synced: int = -1
    """The generation whose assignment it has."""


class Driven:
    policy: GroupPolicy
    random: random.Random
    machine: GroupMachine
    now_ms: int
    log: list[tuple[bytes, bytes | None]]
    waiting: dict[int, str | None]
    """Token -> who asked."""
    next_token: int
    clients: dict[str, Client]
    generation: int
    heard_ms: dict[str, int]
    settled: dict[int, dict[str, bytes]]
    """Generation -> member -> what its leader assigned."""

    def load(self) -> GroupMachine:
        machine = GroupMachine(self.policy, self.random)
        for offset, (key, value) in enumerate(self.log):
            machine.replay_stored(offset, -1, -1, key, value)
        machine.loaded(self.now_ms, self.now_ms)
        return machine

    def decide(self, request: Any, client: str | None = None) -> Any:
        """The answer to this request, None if it waits. Others that were waiting may be answered too."""
        offsets = dict(self.machine.offsets.of(GROUP))
        before = None if self.group is None else (self.group.state, self.group.generation)
        token, self.next_token = self.next_token, self.next_token + 1
        if not isinstance(request, Tick):
            self.waiting[token] = client
        is_early = isinstance(request, Tick) and self.now_ms < self.machine.next_deadline_ms
        known = self.known_ids()
        decision = self.machine.decide(token, request, self.now_ms)
        if is_early:
            assert (decision.replies, self.known_ids()) == ([], known), "a tick was due before it was said to be"
        assert dict(self.machine.offsets.of(GROUP)) == offsets, "decide changed durable state"
        self.check_generation(before)
        own = None
        for answered, response in decision.replies:
            assert answered in self.waiting, "answered twice, or never asked"
            self.hear(self.waiting.pop(answered), response)
            own = response if answered == token else own
        for record in decision.records:
            assert framing.decode(*framing.encode(record)) == record
        self.log += [framing.encode(record) for record in decision.records]
        self.machine.replay(decision.records, next_offset=len(self.log), raft_epoch=1, timestamp_ms=0)
        return own

    def known_ids(self) -> set[str]:
        return set() if self.group is None else {*self.group.members, *self.group.pending}

    def check_generation(self, before: tuple[State, int] | None) -> None:
        group = self.group
        if group is not None and before is not None:
            joined = group.state is State.COMPLETING and before[0] is not State.COMPLETING
            assert group.generation >= before[1] + joined, "a join phase ended and the generation did not go up"

    def ask(self, message: Message, client: str | None = None, version: int = 5, *, may_wait: bool = False) -> Any:
        return self.decide(GroupRequest(message, version, "c", "/h", self.now_ms, may_wait), client)

    def hear(self, client: str | None, response: Any) -> None:
        if isinstance(response, JoinGroupResponse):
            assert client is not None
            if response.error_code in JOINING:
                believes = self.clients[client]
                believes.member_id = response.member_id
                if response.error_code == ErrorCode.NONE:
                    assert response.generation_id >= self.generation, "a generation went back"
                    self.generation = response.generation_id
                    believes.generation = response.generation_id
                    believes.leads = tuple(member.member_id for member in response.members)
                    assert bool(believes.leads) <= (response.leader == response.member_id)
                    self.heard_ms[response.member_id] = self.now_ms
            elif response.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                self.forget(client, response.member_id)
        elif isinstance(response, HeartbeatResponse) and client is not None:
            self.hear_beat(client, ErrorCode(response.error_code))
        elif isinstance(response, SyncGroupResponse) and client is not None and not response.error_code:
            believes = self.clients[client]
            known = self.settled.get(believes.generation)
            if known is not None and believes.member_id in known:
                assert response.assignment == known[believes.member_id], "another's assignment, or another generation's"
            believes.synced = believes.generation
            self.heard_ms[believes.member_id] = self.now_ms

    def hear_beat(self, client: str, code: ErrorCode) -> None:
        believes = self.clients[client]
        if code is ErrorCode.ILLEGAL_GENERATION:
            believes.synced = believes.generation = -1
        elif code not in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self.forget(client, believes.member_id)

    def forget(self, client: str, member_id: str) -> None:
        if self.clients[client].member_id == member_id:
            self.clients[client] = Client()

    @property
    def group(self) -> ClassicGroup | None:
        return self.machine.groups.get(GROUP)
