"""A group shard on a simulated disk, with a manual clock."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from barnabas.core.group.turn import GroupPolicy, GroupRequest
from barnabas.model.ids import Uuid
from barnabas.model.ports import Timer
from barnabas.model.topic_settings import TopicSettings
from barnabas.runtime.group_coordinator import GroupShard
from barnabas.runtime.partition import Partition
from barnabas.sim.disk import SimDisk
from barnabas.storage.producer_state import Origin
from barnabas.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.batch import is_transactional, producer_of
from barnabas.wire.schema import Message
from tests.unit.storage.kit import NOW, open_log, small


class Clock:
    def __init__(self) -> None:
        self.passed_ms = 0
        self.calls: list[tuple[int, Callable[[], None]]] = []

    def now_ms(self) -> int:
        return NOW + self.passed_ms

    def monotonic_ms(self) -> int:
        return self.passed_ms

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Timer:
        call = (deadline_ms, callback)
        self.calls.append(call)
        return Call(self, call)

    def wait(self, ms: int) -> None:
        until = self.passed_ms + ms
        while due := sorted((call for call in self.calls if call[0] <= until), key=lambda call: call[0]):
            self.calls.remove(due[0])
            self.passed_ms = max(self.passed_ms, due[0][0])
            due[0][1]()
        self.passed_ms = until


class Call:
    def __init__(self, clock: Clock, call: tuple[int, Callable[[], None]]) -> None:
        self._clock = clock
        self._call = call

    def cancel(self) -> None:
        if self._call in self._clock.calls:
            self._clock.calls.remove(self._call)


class Kit:
    def __init__(self, settings: TopicSettings | None = None) -> None:
        settings = settings or small(segment_bytes=1 << 20)
        self.disk, self.clock = SimDisk(), Clock()
        self.reports: list[str] = []
        self.reasons: list[str] = []
        self.leader_epoch = 0
        self._open(settings)

    def _open(self, settings: TopicSettings) -> None:
        log = open_log(self.disk, settings)
        self.partition = Partition(log=log, topic_id=Uuid(b"1" * 16), node_id=1, disk=self.disk, clock=self.clock)
        self.leader_epoch += 1
        self.partition.lead(self.leader_epoch, 0, (1,), (1,))
        self.shard = self.new_shard()

    def restart(self) -> None:
        """As after kill -9: all that was written is there, and waiting requests get no reply."""
        self.clock.calls.clear()
        self._open(self.partition.log.settings)

    def new_shard(self) -> GroupShard:
        return GroupShard(self.partition, GroupPolicy(), self.clock, random.Random(1), self.report)

    def report(self, text: str, reason: str, **_: object) -> None:
        self.reports.append(text)
        self.reasons.append(reason)

    def ask(self, message: Message, version: int = 3) -> list[Any]:
        """Where the answer will be."""
        answers: list[Any] = []
        self.shard.submit(GroupRequest(message, version, "c", "/h", self.clock.now_ms()), answers.append)
        return answers

    def join(self, member_id: str = "") -> list[Any]:
        protocols = [JoinGroupRequestProtocol("range", b"")]
        return self.ask(JoinGroupRequest("g", 6000, 60_000, member_id, None, "consumer", protocols))

    def commit(self, *offsets: int) -> list[Any]:
        parts = [OffsetCommitRequestPartition(number, offset) for number, offset in enumerate(offsets)]
        return self.ask(OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", partitions=parts)]), 9)

    def offsets(self, shard: GroupShard | None = None) -> dict[int, int]:
        return {place[1]: held.offset for place, held in (shard or self.shard).machine.offsets.of("g").items()}

    def append(self, data: bytes) -> None:
        guard = self.partition.begin_verification(*producer_of(data)) if is_transactional(data) else None
        self.partition.append(memoryview(bytearray(data)), NOW, Origin.COORDINATOR, guard=guard)
