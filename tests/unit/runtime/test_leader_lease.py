"""A leader that the controller does not hear stands down, unless its in-sync followers still fetch."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.model.errors import ErrorCode
from barnabas.model.ids import NO_LEADER, Uuid
from barnabas.runtime.leader_lease import ANSWERS_MS, LeaderLease
from barnabas.runtime.partition import Partition
from barnabas.sim.clock import NodeClock, Scheduler
from barnabas.sim.disk import SimDisk
from tests.unit.runtime.test_partition import refused
from tests.unit.storage.kit import NOW, batch, open_log, small

SESSION_MS, FOLLOWER_MS = 2500, 1000


class Place:
    """The partitions of a broker, reduced to one that three brokers hold."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        disk, clock = SimDisk(), NodeClock(self.scheduler)
        self.proposals = 0
        self.partition = Partition(
            log=open_log(disk, small(min_insync_replicas=1)),
            topic_id=Uuid(b"1" * 16),
            node_id=1,
            disk=disk,
            clock=clock,
            on_proposal=self._on_proposal,
        )
        self.partition.lead(0, 0, (1, 2, 3), (1, 2, 3))
        self.stood_down: dict[Partition, None] = {}
        self.changes = self.drops = 0
        self.lease = LeaderLease(
            partitions=self,  # type: ignore[arg-type]
            session_ms=SESSION_MS,
            follower_ms=FOLLOWER_MS,
            clock=clock,
            on_change=self._on_change,
            drop_connections=self._drop_connections,
            report=lambda *_, **__: None,
        )
        self.lease.renew(0)

    def _on_proposal(self, _: Partition) -> None:
        self.proposals += 1

    def _on_change(self) -> None:
        self.changes += 1

    def _drop_connections(self) -> None:
        self.drops += 1

    @property
    def led_with_others(self) -> list[Partition]:
        return [] if self.stood_down else [self.partition]

    def stand_down(self, partitions: list[Partition]) -> None:
        for partition in partitions:
            self.stood_down[partition] = None
            partition.stand_down()

    def lead_again(self) -> None:
        self.stood_down.clear()
        self.partition.lead(0, 0, (1, 2, 3), (1, 2, 3))

    def fetch(self, *nodes: int) -> None:
        for node in nodes:
            self.partition.on_follower_fetch(node, 7, self.partition.log_end_offset, eligible=True)

    def append(self) -> Any:
        return self.partition.append(memoryview(bytearray(batch())), NOW)


def test_a_leader_without_answers_stands_down_and_answers_those_who_wait() -> None:
    place = Place()
    outcomes: list[ErrorCode] = []
    place.partition.when_committed(place.append().last_offset, outcomes.append)
    place.scheduler.run_until(SESSION_MS - 1)
    assert outcomes == []
    place.scheduler.run_until(SESSION_MS)
    assert outcomes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert place.partition.leader_id == NO_LEADER
    assert refused(place.append) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refused(lambda: place.partition.check_replica(-1)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (place.changes, place.drops) == (1, 0)
    place.scheduler.run_until(SESSION_MS + ANSWERS_MS)
    assert place.drops == 1, "clients that this broker does not hear look elsewhere"


def test_heartbeats_keep_the_lease() -> None:
    place = Place()
    for now_ms in range(0, 10_000, 500):
        place.scheduler.run_until(now_ms)
        place.lease.renew(now_ms)
    assert place.partition.leader is not None


def test_a_late_answer_counts_from_when_the_heartbeat_was_sent() -> None:
    place = Place()
    place.scheduler.run_until(2400)
    place.lease.renew(100)
    place.scheduler.run_until(2600)
    assert place.partition.leader is None


@pytest.mark.parametrize(("fetching", "leads"), [((2, 3), True), ((2,), False)])
def test_a_partition_is_led_on_while_all_in_sync_replicas_fetch(fetching: tuple[int, ...], leads: bool) -> None:
    place = Place()
    for now_ms in range(500, 6000, 500):
        place.scheduler.run_until(now_ms)
        if place.partition.leader is not None:
            place.fetch(*fetching)
    assert (place.partition.leader is not None) is leads


def test_what_was_known_of_followers_and_proposals_survives() -> None:
    """The controller may accept a proposal while nobody hears its answer: the replica counts until that is known."""
    place = Place()
    place.partition.update(1, (1, 2))
    place.partition.on_follower_fetch(3, 7, 0, eligible=True)
    assert place.partition.leader is not None
    assert place.partition.leader.proposal is not None
    place.scheduler.run_until(SESSION_MS)
    assert place.partition.leader is None
    place.lease.renew(SESSION_MS)
    assert place.partition.leader is not None
    assert place.partition.leader.proposal is not None, "it still counts for the high watermark"
    assert place.proposals == 2, "the controller is asked again"
    last_offset = place.append().last_offset
    place.fetch(2)
    assert place.partition.high_watermark == last_offset, "replica 3 may be in sync"
    place.fetch(3)
    assert place.partition.high_watermark == last_offset + 1
