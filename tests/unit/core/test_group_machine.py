"""The group machine against a simple model: random members, commits, restarts and time.

Of whatever happens: a request is answered once, and every one in the end; generations go up only; a settled group's
members all have the assignment of its generation; a leader is a member; committed offsets change by a commit, a
deletion or expiry alone; and the log makes the same durable state again.
"""

from __future__ import annotations

import random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.core.decision import Tick
from barnabas.core.group.classic import State
from barnabas.core.group.turn import GroupPolicy
from barnabas.model.errors import ErrorCode
from barnabas.wire.api.delete_groups import DeleteGroupsRequest
from barnabas.wire.api.heartbeat import HeartbeatRequest
from barnabas.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.unit.core.group_driver import GROUP, Client, Driven

SESSION_MS, REBALANCE_MS, RETENTION_MS, CHECK_MS = 6000, 9000, 100_000, 5000
TICK_MS = 250
LONGEST_WAIT_MS = 10 * (SESSION_MS + REBALANCE_MS)
"""Without new members, no request waits for longer than a few rebalances."""

CLIENTS = st.sampled_from(["a", "b", "c", "d"])
STATIC = {"a": None, "b": "ib", "c": None, "d": "id"}
"""Client -> its instance id."""
PROTOCOLS = st.sampled_from([("range",), ("range", "rr"), ("rr", "range"), ("rr",)])
SELDOM = st.sampled_from([False] * 9 + [True])
PLACES = st.sampled_from([("t", 0), ("t", 1), ("u", 0)])


class GroupMachineAgainstModel(Driven, RuleBasedStateMachine):
    @initialize(
        seed=st.integers(0, 2**32),
        delay_ms=st.sampled_from([0, 0, 3000]),
        hold_ms=st.sampled_from([0, 1000, 3000]),
        size=st.sampled_from([2, 100, 100]),
    )
    def begin(self, seed: int, delay_ms: int, hold_ms: int, size: int) -> None:
        self.policy = GroupPolicy(
            initial_rebalance_delay_ms=delay_ms,
            heartbeat_hold_ms=hold_ms,
            max_size=size,
            new_member_join_timeout_ms=2 * REBALANCE_MS,
            offsets_retention_ms=RETENTION_MS,
            offsets_check_interval_ms=CHECK_MS,
        )
        self.random = random.Random(seed)
        self.now_ms = 1_000_000
        self.log = []
        self.waiting = {}
        self.next_token = 0
        self.clients = {name: Client() for name in STATIC}
        self.committed: dict[tuple[str, int], tuple[int, int]] = {}
        self.generation = 0
        self.heard_ms = {}
        self.settled = {}
        self.machine = self.load()
        # Most interesting things happen to a group that lives: random steps alone seldom make one.
        self.live(["a", "b", "c"][: self.random.randrange(4)], rounds=20 if delay_ms else 8)

    # What clients do

    @rule(missing=CLIENTS)
    def live_on(self, missing: str) -> None:
        self.live([name for name in STATIC if self.clients[name].member_id and name != missing], rounds=4)

    @rule()
    def all_live_on(self) -> None:
        self.live([name for name in STATIC if self.clients[name].member_id], rounds=6)

    @rule(names=st.lists(CLIENTS, min_size=1, max_size=4, unique=True), rounds=st.sampled_from([1, 2, 5]))
    def live(self, names: list[str], rounds: int) -> None:
        """Some do what a good client does next."""
        for _ in range(rounds):
            self.wait(1)
            for name in names:
                believes = self.clients[name]
                if name in self.waiting.values():
                    continue
                if not believes.member_id or believes.generation < 0:
                    self.join(name, ("range",), "t", again=False)
                elif believes.synced != believes.generation:
                    self.sync(name)
                elif self.beat(name) is ErrorCode.REBALANCE_IN_PROGRESS:
                    self.join(name, ("range",), "t", again=False)

    @rule()
    def followers_sync(self) -> None:
        """Their leader takes its time."""
        for name, believes in self.clients.items():
            if believes.generation >= 0 and believes.synced != believes.generation and not believes.leads:
                self.sync(name)

    @rule(name=CLIENTS, protocols=PROTOCOLS, topic=st.sampled_from("tu"), again=SELDOM)
    def join(self, name: str, protocols: tuple[str, ...], topic: str, again: bool) -> None:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id="" if again else self.clients[name].member_id,
            group_instance_id=STATIC[name],
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(each, b"\0\0\0\0\0\1\0\1" + topic.encode()) for each in protocols],
        )
        self.ask(request, name, version=9)

    @rule(name=CLIENTS)
    def sync(self, name: str) -> None:
        believes = self.clients[name]
        given = {member: f"{believes.generation}:{member}".encode() for member in believes.leads}
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=believes.generation,
            member_id=believes.member_id,
            group_instance_id=STATIC[name],
            assignments=[SyncGroupRequestAssignment(*pair) for pair in given.items()],
        )
        group = self.group
        is_current = group is not None and group.generation == believes.generation
        if group is not None and is_current and group.state is State.COMPLETING and group.leader == believes.member_id:
            self.settled[believes.generation] = given
        self.ask(request, name, version=4)

    @rule(name=CLIENTS)
    def heartbeat(self, name: str) -> None:
        self.beat(name)

    def beat(self, name: str) -> ErrorCode:
        believes = self.clients[name]
        request = HeartbeatRequest(GROUP, believes.generation, believes.member_id, STATIC[name])
        code = ErrorCode(self.ask(request).error_code)
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self.heard_ms[believes.member_id] = self.now_ms
        self.hear_beat(name, code)
        return code

    @rule(name=CLIENTS)
    def held_heartbeat(self, name: str) -> None:
        """One that may be answered later: by a rebalance, the next one, or when its time is up."""
        believes = self.clients[name]
        member_id, group = believes.member_id, self.group
        request = HeartbeatRequest(GROUP, believes.generation, member_id, STATIC[name])
        answer = self.ask(request, name, may_wait=True)
        if answer is None:
            assert group is not None
            assert (group.state, group.generation) == (State.STABLE, believes.generation)
        if answer is None or answer.error_code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self.heard_ms[member_id] = self.now_ms

    @rule(name=CLIENTS)
    def leave(self, name: str) -> None:
        believes = self.clients[name]
        self.ask(LeaveGroupRequest(GROUP, members=[MemberIdentity(believes.member_id, STATIC[name])]))
        assert self.group is None or believes.member_id not in self.group.members
        self.clients[name] = Client()

    # Offsets

    @rule(name=CLIENTS, place=PLACES, offset=st.integers(0, 9), simple=SELDOM)
    def commit(self, name: str, place: tuple[str, int], offset: int, simple: bool) -> None:
        believes = Client() if simple else self.clients[name]
        group = self.group
        empty = group is None or group.state is State.EMPTY
        current = group is not None and believes.member_id in group.members and believes.generation == group.generation
        allowed = empty if believes.generation < 0 else current and group is not None
        if group is not None and group.state is State.COMPLETING:
            allowed = False
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=believes.generation,
            member_id=believes.member_id,
            topics=[OffsetCommitRequestTopic(place[0], partitions=[OffsetCommitRequestPartition(place[1], offset)])],
        )
        code = self.ask(request, version=9).topics[0].partitions[0].error_code
        assert (code == ErrorCode.NONE) == allowed, ErrorCode(code)
        if allowed:
            self.committed[place] = offset, self.now_ms
            self.heard_ms[believes.member_id] = self.now_ms

    @rule(place=PLACES)
    def delete_offset(self, place: tuple[str, int]) -> None:
        topics = [OffsetDeleteRequestTopic(place[0], [OffsetDeleteRequestPartition(place[1])])]
        response = self.ask(OffsetDeleteRequest(GROUP, topics))
        if not response.error_code and not response.topics[0].partitions[0].error_code:
            self.committed.pop(place, None)

    @rule(seldom=SELDOM)
    def delete_group(self, seldom: bool) -> None:
        if not seldom:
            return
        group = self.group
        response = self.ask(DeleteGroupsRequest([GROUP]))
        if response.results[0].error_code == ErrorCode.NONE:
            assert group is None or group.state is State.EMPTY
            self.committed.clear()
            self.generation = 0
            self.settled.clear()

    # Time and failures

    @rule(ticks=st.sampled_from([1, 1, 4, 4, 12, 30]))
    def wait(self, ticks: int) -> None:
        for _ in range(ticks):
            self.now_ms += TICK_MS
            self.tick()

    def tick(self) -> None:
        self.decide(Tick(self.now_ms))
        if self.group is None:
            self.generation = 0
            self.settled.clear()
        known = self.machine.offsets.of(GROUP)
        for place in [place for place in self.committed if place not in known]:
            assert self.now_ms - self.committed.pop(place)[1] >= RETENTION_MS, "expired too early"

    @rule(seldom=SELDOM)
    def age(self, seldom: bool) -> None:
        """Long enough that whatever may expire does."""
        if not seldom:
            return
        self.settle(seldom=True)
        self.now_ms += RETENTION_MS
        for _ in range(2 * CHECK_MS // TICK_MS):
            self.now_ms += TICK_MS
            self.tick()
        assert not self.committed
        assert GROUP not in self.machine.groups

    @rule(seldom=SELDOM)
    def settle(self, seldom: bool) -> None:
        """Nobody is heard of any more: all are answered, and gone."""
        if not seldom:
            return
        for _ in range(LONGEST_WAIT_MS // TICK_MS):
            self.now_ms += TICK_MS
            self.tick()
        assert not self.waiting, "somebody waits for ever"
        assert not self.machine.is_live
        assert self.group is None or (self.group.state is State.EMPTY and not self.group.members)
        for key in self.clients:
            self.clients[key] = Client()

    @rule(seldom=SELDOM)
    def restart(self, seldom: bool) -> None:
        """Waiting clients retry elsewhere. Members of the last stable generation are known."""
        if not seldom:
            return
        self.waiting.clear()
        before = self.durable()
        self.machine = self.load()
        assert self.durable() == before
        group = self.group
        self.generation = group.generation if group is not None else 0
        if group is not None:
            self.heard_ms.update(dict.fromkeys(group.members, self.now_ms))

    def durable(self) -> Any:
        return dict(self.machine.offsets.of(GROUP))

    # What always holds

    @invariant()
    def offsets_are_those_committed(self) -> None:
        if not hasattr(self, "machine"):
            return
        found = {place: held.offset for place, held in self.machine.offsets.of(GROUP).items()}
        assert found == {place: offset for place, (offset, _) in self.committed.items()}
        wanted = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, topics=None)], require_stable=True)
        topics = self.ask(wanted).groups[0].topics
        told = {(topic.name, p.partition_index): p.committed_offset for topic in topics for p in topic.partitions}
        assert told == found

    @invariant()
    def the_group_is_sound(self) -> None:
        group = self.group if hasattr(self, "machine") else None
        if group is None:
            return
        members = group.members
        assert (group.leader in members) if members else group.leader is None
        assert (group.state is State.EMPTY) == (not members)
        assert all(group.static_ids.get(m.instance_id) == m.member_id for m in members.values() if m.instance_id)
        assert len(group.static_ids) == sum(m.instance_id is not None for m in members.values())
        assert not set(group.pending) & set(members)
        tokens = [token for m in members.values() for token in (m.joining, m.syncing, m.beating) if token is not None]
        assert len(tokens) == len(set(tokens)) == len(self.waiting)
        if group.state is not State.STABLE:
            assert not any(member.beating is not None for member in members.values())
        longest_ms = min(self.policy.heartbeat_hold_ms, SESSION_MS // 3)
        assert all(m.held_until_ms <= self.now_ms + longest_ms for m in members.values() if m.beating is not None)
        if group.state is not State.PREPARING:
            assert not any(member.joining is not None for member in members.values())
        if group.state is State.STABLE:
            given = self.settled.get(group.generation, {})
            by_instance = {m.instance_id: m.assignment for m in members.values() if m.instance_id}
            for member in members.values():
                if member.member_id in given:
                    assert member.assignment == given[member.member_id]
                assert member.assignment.startswith(b"%d:" % group.generation) or member.assignment == b""
            assert len(by_instance) == len(group.static_ids)

    @invariant()
    def the_silent_are_gone(self) -> None:
        group = self.group if hasattr(self, "machine") else None
        for member in group.members.values() if group is not None else ():
            if member.joining is None and member.syncing is None:
                quiet_ms = self.now_ms - self.heard_ms.get(member.member_id, self.now_ms)
                # A rebalance that begins or completes renews the sessions of members that waited for it.
                assert quiet_ms <= SESSION_MS + REBALANCE_MS + TICK_MS, "a member outlived its session"

    @invariant()
    def the_log_makes_the_same_state(self) -> None:
        if not hasattr(self, "machine"):
            return
        again = self.load()
        assert dict(again.offsets.of(GROUP)) == dict(self.machine.offsets.of(GROUP))
        ours, theirs = self.group, again.groups.get(GROUP)
        # Static members that did not rejoin stay, and may be too many: then loading begins a rebalance.
        if ours is not None and ours.state is State.STABLE and len(ours.members) <= self.policy.max_size:
            assert theirs is not None
            assert theirs.state is State.STABLE
            assert theirs.as_record() == ours.as_record() or theirs.members.keys() != ours.members.keys()
            assert theirs.generation == ours.generation
            assert {m: theirs.members[m].assignment for m in theirs.members} == {
                m: ours.members[m].assignment for m in ours.members
            }


TestGroupMachine = GroupMachineAgainstModel.TestCase
TestGroupMachine.settings = settings(
    max_examples=150,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
