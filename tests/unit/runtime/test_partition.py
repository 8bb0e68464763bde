"""Operations of a partition other than append and read. Handlers get error codes, never exceptions of storage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import Uuid
from barnabas.runtime.partition import Partition
from barnabas.sim.disk import SimDisk
from tests.unit.storage.kit import NOW, batch, open_log, small


class StillClock:
    def now_ms(self) -> int:
        return NOW

    def monotonic_ms(self) -> int:
        return 0

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Any:
        raise NotImplementedError


def led(disk: SimDisk | None = None, epochs: tuple[int, ...] = (3, 5), **settings: Any) -> Partition:
    """Three records in each epoch, a second apart."""
    disk = disk or SimDisk()
    log = open_log(disk, small(**settings))
    partition = Partition(log=log, topic_id=Uuid(b"1" * 16), node_id=1, disk=disk, clock=StillClock())
    for leader_epoch in epochs:
        partition.lead(leader_epoch, 0, (1,), (1,))
        for _ in range(3):
            timestamp = NOW + 1000 * log.log_end_offset
            partition.append(memoryview(bytearray(batch(timestamp=timestamp))), NOW)
    return partition


def refused(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        call()
    return caught.value.code


def test_epochs_of_offsets_and_their_ends() -> None:
    partition = led()
    assert [partition.epoch_of(offset) for offset in (0, 2, 3, 6)] == [3, 3, 5, 5]
    assert partition.end_of_epoch(3) == (3, 3)
    assert partition.end_of_epoch(5) == (5, 6)
    assert partition.end_of_epoch(9) == (-1, -1)


def test_offsets_by_time() -> None:
    partition = led()
    found = partition.offset_for_timestamp(NOW + 2500)
    assert found is not None
    assert (found.offset, found.timestamp, found.leader_epoch) == (3, NOW + 3000, 5)
    assert partition.offset_for_timestamp(NOW + 9000) is None
    latest = partition.offset_of_max_timestamp()
    assert latest is not None
    assert latest.offset == 5


def test_records_are_deleted_up_to_the_high_watermark() -> None:
    partition = led()
    assert partition.delete_records_before(4) == 4
    assert partition.delete_records_before(2) == 4, "the start never goes back"
    assert partition.epoch_of(4) == 5
    for offset in (-1, 7):
        assert refused(lambda offset=offset: partition.delete_records_before(offset)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.delete_records_before(partition.high_watermark) == 6


def test_a_log_that_is_offline_answers_with_a_storage_error() -> None:
    partition = led()
    partition.log.fail("the disk is gone")
    for call in (
        lambda: partition.offset_for_timestamp(NOW),
        partition.offset_of_max_timestamp,
        lambda: partition.delete_records_before(1),
        lambda: partition.read(0, 100, committed_only=False, minimum_one=True),
        lambda: partition.append(memoryview(bytearray(batch())), NOW),
    ):
        assert refused(call) is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_flush_that_fails_answers_those_who_wait() -> None:
    disk = SimDisk()
    partition = led(disk, epochs=(3,))
    partition.log.epochs.store(sync=True)
    outcomes: list[ErrorCode] = []
    partition.when_committed(partition.high_watermark, outcomes.append)
    disk.fail_next(count=1000)
    partition.flush()
    assert outcomes == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert refused(partition.check_leader) is ErrorCode.KAFKA_STORAGE_ERROR


def test_damage_is_an_error_code() -> None:
    disk = SimDisk()
    partition = led(disk, segment_bytes=200)
    damaged = partition.log.segments[1]
    assert damaged is not partition.log.active
    disk.open(f"{damaged.name}.log").write([bytes(damaged.size)], 0)
    partition.log.forget_places()
    offset = damaged.base_offset

    def read() -> object:
        return partition.read(offset, 1000, committed_only=False, minimum_one=True)

    assert refused(read) is ErrorCode.CORRUPT_MESSAGE
    assert refused(lambda: partition.offset_for_timestamp(NOW + 1000 * offset)) is ErrorCode.CORRUPT_MESSAGE
    assert partition.read(0, 1000, committed_only=False, minimum_one=True).records is not None


class Waiter:
    def __init__(self) -> None:
        self.grown_bytes: list[int] = []
        self.disturbances = 0

    def grown(self, partition: Partition, grown_bytes: int) -> None:
        self.grown_bytes.append(grown_bytes)

    def disturbed(self) -> None:
        self.disturbances += 1


def test_acks_1_does_not_wait_for_followers_and_acks_all_does() -> None:
    partition = led(epochs=())
    partition.lead(1, 0, (1, 2), (1, 2))
    durable: list[ErrorCode] = []
    committed: list[ErrorCode] = []
    appended = partition.append(memoryview(bytearray(batch())), NOW)
    partition.when_durable(appended.last_offset, durable.append)
    partition.when_committed(appended.last_offset, committed.append)
    assert (durable, committed) == ([ErrorCode.NONE], [])
    assert (partition.durable_end, partition.high_watermark) == (1, 0)
    assert partition.is_durable_at_once
    assert not partition.commits_at_once


def test_the_same_epoch_with_other_in_sync_replicas_is_an_update() -> None:
    partition = led(epochs=())
    partition.lead(1, 0, (1, 2), (1, 2))
    waiter = Waiter()
    partition.add_fetch(waiter)
    size = sum(partition.append(memoryview(bytearray(batch())), NOW).size for _ in range(2))
    assert waiter.grown_bytes == []
    partition.lead(1, 1, (1, 2), (1,))
    assert (partition.high_watermark, partition.in_sync_count) == (2, 1)
    assert waiter.grown_bytes == [size], "growth is what became visible"
    partition.update(1, (1, 2))
    assert partition.in_sync_count == 1, "an update that was applied already changes nothing"
    partition.update(2, (1, 2))
    partition.append(memoryview(bytearray(batch())), NOW)
    assert partition.high_watermark == 2, "the replica that joined holds it until it has fetched"


def test_a_follower_answers_as_one_and_keeps_its_high_watermark() -> None:
    partition = led()
    waiter, outcomes = Waiter(), []
    partition.add_fetch(waiter)
    partition.when_committed(100, outcomes.append)
    partition.follow(2, 6)
    assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (2, 6, 6)
    assert outcomes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert waiter.disturbances == 1
    assert refused(lambda: partition.append(memoryview(bytearray(batch())), NOW)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.follow(3, 5)
    assert partition.leader_id == 2, "an older epoch is no news"


@pytest.mark.parametrize(("checkpoint", "expected"), [(0, 0), (4, 4), (99, 6)])
def test_the_high_watermark_starts_from_its_checkpoint_within_the_log(checkpoint: int, expected: int) -> None:
    disk = SimDisk()
    led(disk)
    log = open_log(disk)
    partition = Partition(
        log=log, topic_id=Uuid(b"1" * 16), node_id=1, disk=disk, clock=StillClock(), high_watermark=checkpoint
    )
    assert partition.high_watermark == expected
