"""A follower's fetch passes over partitions without news, and over no others."""

from __future__ import annotations

from barnabas.broker.fetch_sessions import Settled, Target
from barnabas.model.ids import Uuid
from barnabas.runtime.partition import Partition
from barnabas.sim.clock import NodeClock, Scheduler
from barnabas.sim.disk import SimDisk
from barnabas.wire.api.fetch import FetchPartition
from tests.unit.storage.kit import NOW, batch, open_log, small

FOLLOWER = 2


class Place:
    """A leader with one follower that holds all of its three records, and has been told so."""

    def __init__(self) -> None:
        disk, self.scheduler = SimDisk(), Scheduler()
        self.partition = Partition(
            log=open_log(disk, small(min_insync_replicas=1)),
            topic_id=Uuid(b"1" * 16),
            node_id=1,
            disk=disk,
            clock=NodeClock(self.scheduler),
        )
        self.partition.lead(0, 0, (1, FOLLOWER), (1, FOLLOWER))
        self.append()
        self.fetch(3)
        self.target = Target(b"1" * 16, FetchPartition(0, fetch_offset=3))
        self.tell()
        leader = self.partition.check_leader()
        self.settled = Settled(self.partition, leader, leader.followers[FOLLOWER])

    def append(self) -> None:
        self.partition.append(memoryview(bytearray(batch(3))), NOW)

    def fetch(self, offset: int) -> None:
        self.partition.on_follower_fetch(FOLLOWER, 7, offset, eligible=True)

    def tell(self) -> None:
        self.target.high_watermark = self.partition.high_watermark
        self.target.log_start_offset = self.partition.log_start_offset

    def holds(self, now_ms: int = 0) -> bool:
        return self.settled.holds(self.target, FOLLOWER, now_ms)


def test_a_partition_without_news_is_passed_over_and_its_follower_counts() -> None:
    place = Place()
    assert place.holds(now_ms=500)
    assert place.partition.check_leader().followers[FOLLOWER].fetched_ms == 500


def test_records_are_news() -> None:
    place = Place()
    assert place.holds()
    place.append()
    assert not place.holds()


def test_what_is_not_committed_is_looked_at_again() -> None:
    """A changed min.insync.replicas, say, moves the high watermark with the next fetch."""
    place = Place()
    place.append()
    place.target.wanted = FetchPartition(0, fetch_offset=6)
    assert not place.holds()


def test_a_high_watermark_or_log_start_that_was_not_told_is_news() -> None:
    place = Place()
    place.target.high_watermark = 2
    assert not place.holds()
    place.tell()
    assert place.holds()
    place.partition.delete_records_before(1)
    assert not place.holds()


def test_another_leader_epoch_is_news() -> None:
    place = Place()
    assert place.holds()
    place.partition.lead(1, 1, (1, FOLLOWER), (1, FOLLOWER))
    assert not place.holds()


def test_a_follower_out_of_sync_is_looked_at_so_that_it_joins() -> None:
    place = Place()
    assert place.holds()
    place.partition.update(1, (1,))
    assert not place.holds()
