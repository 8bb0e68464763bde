"""Delayed Heartbeat and SyncGroup responses (ADR 5)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from barnabas.core.group.machine import GroupMachine, Tick
from barnabas.core.group.turn import GroupPolicy, GroupRequest
from barnabas.model.errors import ErrorCode
from barnabas.wire import codec
from barnabas.wire.api.heartbeat import HeartbeatRequest
from barnabas.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.wire.schema import Message
from barnabas.wire.stored.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)


def subscription(*owned: int) -> bytes:
    owns = [TopicPartition("t", list(owned))] if owned else []
    return b"\0\1" + codec.encode_bytes(ConsumerProtocolSubscription(["t"], None, owns), 1)


def assignment(*partitions: int) -> bytes:
    given = [TopicPartition("t", list(partitions))] if partitions else []
    return b"\0\1" + codec.encode_bytes(ConsumerProtocolAssignment(given), 1)


class Group:
    """Two members: ``a`` has both partitions, and ``b`` comes."""

    def __init__(self, hold_ms: int = 3000, *, owned: tuple[int, ...] = (0, 1), may_wait: bool = True) -> None:
        self.machine = GroupMachine(GroupPolicy(heartbeat_hold_ms=hold_ms), random.Random(1))
        self.machine.loaded(0, 0)
        self.now_ms = 0
        self.may_wait = may_wait
        self.owned = owned
        self.ids: dict[str, str] = {}

    def ask(self, token: str, message: Message | Tick) -> dict[Any, Any]:
        asked: Any = message
        if isinstance(message, Message):
            asked = GroupRequest(message, 3, "c", "/h", self.now_ms, self.may_wait)
        decision = self.machine.decide(token, asked, self.now_ms)
        self.machine.replay(decision.records, next_offset=9, raft_epoch=1, timestamp_ms=0)
        answers = dict(decision.replies)
        for name, answer in answers.items():
            if hasattr(answer, "member_id"):
                self.ids[str(name)[-1]] = answer.member_id
        return answers

    def join(self, name: str, *owned: int) -> dict[Any, Any]:
        protocols = [JoinGroupRequestProtocol("cooperative-sticky", subscription(*owned))]
        request = JoinGroupRequest("g", 12_000, 60_000, self.ids.get(name, ""), None, "consumer", protocols)
        return self.ask(f"join {name}", request)

    def sync(self, name: str, **given: bytes) -> dict[Any, Any]:
        assignments = [SyncGroupRequestAssignment(self.ids[who], what) for who, what in given.items()]
        generation = self.machine.groups["g"].generation
        return self.ask(f"sync {name}", SyncGroupRequest("g", generation, self.ids[name], assignments=assignments))

    def beat(self, name: str) -> dict[Any, Any]:
        generation = self.machine.groups["g"].generation
        return self.ask(f"beat {name}", HeartbeatRequest("g", generation, self.ids[name]))

    def wait(self, ms: int) -> dict[Any, Any]:
        self.now_ms += ms
        return self.ask("", Tick(self.now_ms))

    def second_joins(self) -> None:
        self.join("a")
        self.sync("a", a=assignment(0, 1))
        self.join("b")
        self.join("a", *self.owned)


def test_a_member_with_nothing_waits_for_the_rebalance_that_gives_it_something() -> None:
    group = Group()
    group.second_joins()
    assert group.sync("b") == {}
    told = group.sync("a", a=assignment(0), b=assignment())
    assert list(told) == ["sync a"], "b has nothing to begin with, and a gives up partition 1"
    told = group.join("a", 0)
    assert told["sync b"].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    told = group.join("b")
    assert {"join a", "join b"} == set(told)
    group.sync("b")
    told = group.sync("a", a=assignment(0), b=assignment(1))
    assert {name: answer.assignment for name, answer in told.items()} == {
        "sync a": assignment(0),
        "sync b": assignment(1),
    }


@pytest.mark.parametrize("leader_first", [True, False])
def test_it_waits_no_longer_than_it_may(leader_first: bool) -> None:
    group = Group()
    group.second_joins()
    if leader_first:
        group.sync("a", a=assignment(0), b=assignment())
        assert group.sync("b") == {}
    else:
        assert group.sync("b") == {}
        group.sync("a", a=assignment(0), b=assignment())
    assert group.wait(2750) == {}
    (answer,) = group.wait(250).values()
    assert (answer.error_code, answer.assignment) == (0, assignment())


@pytest.mark.parametrize(
    "group",
    [
        Group(0),
        Group(may_wait=False),
        Group(owned=()),  # an eager member has given up all it had before it joins
        Group(owned=(0,)),
    ],
    ids=["turned off", "a client that may not wait", "eager", "nothing is taken away"],
)
def test_nobody_waits_without_need(group: Group) -> None:
    group.second_joins()
    group.sync("b")
    assert set(group.sync("a", a=assignment(0), b=assignment())) == {"sync a", "sync b"}


def test_who_has_something_begins_with_it() -> None:
    group = Group()
    group.second_joins()
    group.sync("b")
    assert set(group.sync("a", a=assignment(), b=assignment(1))) == {"sync b"}


def test_an_assignor_with_a_language_of_its_own_is_left_alone() -> None:
    group = Group()
    group.second_joins()
    group.sync("b")
    assert set(group.sync("a", a=b"\0\1?", b=b"")) == {"sync a", "sync b"}


def test_a_held_heartbeat_brings_the_news_of_a_rebalance() -> None:
    group = Group()
    group.join("a")
    group.sync("a", a=assignment(0, 1))
    assert group.beat("a") == {}
    told = group.join("b")
    assert told["beat a"].error_code == ErrorCode.REBALANCE_IN_PROGRESS
