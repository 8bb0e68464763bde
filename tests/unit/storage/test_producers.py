"""Idempotence and transactions, in memory and across restarts."""

from __future__ import annotations

import pytest

from barnabas.model.errors import ApiError, ErrorCode
from barnabas.sim.disk import SimDisk
from barnabas.storage.producer_snapshot import RETRY_MS, CorruptSnapshot, decode_snapshot, encode_snapshot
from barnabas.storage.producer_state import MAX_SEQUENCE, Origin, ProducerState
from tests.unit.storage.kit import NOW, append, batch, end_transaction, new_log, offsets, open_log, produce, small, span


def code_of(action) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        action()
    return caught.value.code


def test_the_last_five_batches_are_recognised_and_answered_as_at_first():
    log = new_log()
    first = [produce(log, 1, sequence, 2) for sequence in range(0, 12, 2)]
    for appended, sequence in list(zip(first, range(0, 12, 2), strict=True))[1:]:
        again = produce(log, 1, sequence, 2)
        assert again.duplicate
        assert span(again) == span(appended)
    assert code_of(lambda: produce(log, 1, 0, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 12


def test_a_gap_is_refused():
    log = new_log()
    produce(log, 1, 0)
    assert code_of(lambda: produce(log, 1, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_stale_epoch_is_refused_and_a_new_one_begins_at_zero():
    log = new_log()
    produce(log, 1, 0, epoch=3)
    assert code_of(lambda: produce(log, 1, 1, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(lambda: produce(log, 1, 1, epoch=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    produce(log, 1, 0, epoch=4)
    assert code_of(lambda: produce(log, 1, 1, epoch=3)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_unknown_producer_may_begin_anywhere():
    log = new_log()
    produce(log, 1, 77)
    produce(log, 1, 78)


def test_sequences_wrap():
    log = new_log()
    produce(log, 1, MAX_SEQUENCE - 1, 3)
    wrapped = produce(log, 1, 1, 2)
    assert produce(log, 1, MAX_SEQUENCE - 1, 3).duplicate
    assert span(produce(log, 1, 1, 2)) == span(wrapped)
    produce(log, 2, MAX_SEQUENCE)
    produce(log, 2, 0)


def test_producers_do_not_disturb_each_other():
    log = new_log()
    for sequence in range(5):
        produce(log, 1, sequence)
        produce(log, 2, sequence)
    assert log.log_end_offset == 10


def test_a_failed_check_leaves_no_trace():
    log = new_log()
    produce(log, 1, 0)
    with pytest.raises(ApiError):
        produce(log, 1, 5)
    produce(log, 1, 1)


@pytest.mark.parametrize("clean", [True, False])
def test_idempotence_survives_a_restart(clean):
    disk = SimDisk()
    log = open_log(disk)
    for sequence in range(30):
        produce(log, 1, sequence)
    if clean:
        log.close()
    log = open_log(disk, clean=clean)
    assert produce(log, 1, 29).duplicate
    assert code_of(lambda: produce(log, 1, 31)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(log, 1, 30).first_offset == 30


def test_a_damaged_snapshot_is_replaced_by_the_log():
    disk = SimDisk()
    log = open_log(disk)
    for sequence in range(30):
        produce(log, 1, sequence)
    log.close()
    for name in disk.list("/data/topic-0"):
        if name.endswith(".snapshot"):
            disk.write_file(f"/data/topic-0/{name}", b"rubbish")
    log = open_log(disk, clean=True)
    assert produce(log, 1, 29).duplicate


def test_a_damaged_batch_says_nothing_about_its_producer():
    disk = SimDisk()
    log = open_log(disk, small(segment_bytes=1 << 20))
    for producer_id in (1, 2, 3):
        produce(log, producer_id, 0)
    log.close()
    for name in disk.list("/data/topic-0"):
        if name.endswith(".snapshot"):
            disk.write_file(f"/data/topic-0/{name}", b"rubbish")
    file = disk.open("/data/topic-0/00000000000000000000.log")
    sequence_at = file.size() // 3 + 53
    file.write([bytes([1])], sequence_at)
    reports = []
    log = open_log(disk, clean=True, report=lambda event, **fields: reports.append((event, fields.get("offset"))))
    assert sorted(log.producers.producers) == [1, 3]
    assert ("a damaged batch is left out of the producer state", 1) in reports


def test_silent_producers_are_forgotten_unless_a_transaction_is_open():
    log = new_log(producer_id_expiration_ms=1000)
    produce(log, 1, 0)
    produce(log, 2, 0, transactional=True)
    assert log.expire_producers(NOW, 0) == 0, "the first look only notes the time"
    assert log.expire_producers(NOW + 999, 999) == 0
    assert log.expire_producers(NOW + 1000, 1000) == 1
    produce(log, 1, 55)
    assert code_of(lambda: produce(log, 2, 5, transactional=True)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("timestamp", [NOW - 2 * 24 * 3600 * 1000, -1])
@pytest.mark.parametrize("clean", [True, False])
def test_producers_of_old_records_are_known_across_restarts(timestamp: int, clean: bool):
    """Idle counts from when the broker heard of the producer, not from what its records say."""
    disk = SimDisk()
    log = open_log(disk)
    produce(log, 1, 0, timestamp=timestamp)
    assert log.expire_producers(NOW, 0) == log.expire_producers(NOW + 1000, 1000) == 0
    assert produce(log, 1, 0, timestamp=timestamp).duplicate
    if clean:
        log.close()
    log = open_log(disk, clean=clean, now_ms=NOW + 1000)
    assert log.expire_producers(NOW + 1000, 0) == log.expire_producers(NOW + 2000, 1000) == 0
    assert produce(log, 1, 0, timestamp=timestamp).duplicate
    produce(log, 1, 1, timestamp=timestamp)


def test_a_producer_may_repeat_a_batch_after_a_long_stop_and_expires_later():
    day_ms = 24 * 60 * 60_000
    disk = SimDisk()
    log = open_log(disk)
    produce(log, 1, 0)
    log.close()
    later = NOW + 10 * day_ms
    log = open_log(disk, clean=True, now_ms=later, producer_id_expiration_ms=day_ms)
    assert produce(log, 1, 0).duplicate
    log.expire_producers(later, 0)
    assert log.expire_producers(later + RETRY_MS - 1, RETRY_MS - 1) == 0
    assert log.expire_producers(later + RETRY_MS, RETRY_MS) == 1


@pytest.mark.parametrize("jump_ms", [10_000_000, -10_000_000])
def test_a_clock_that_is_set_makes_no_producer_idle(jump_ms: int):
    log = new_log(producer_id_expiration_ms=1000)
    produce(log, 1, 0)
    log.expire_producers(NOW, 0)
    assert log.expire_producers(NOW + jump_ms + 500, 500) == 0
    assert log.expire_producers(NOW + jump_ms + 900, 900) == 0
    assert log.expire_producers(NOW + jump_ms + 2000, 2000) == 1


def test_a_snapshot_says_what_the_state_was():
    log = new_log()
    produce(log, 1, 0, 3)
    produce(log, 2, MAX_SEQUENCE - 1, 4, transactional=True, epoch=7)
    end_transaction(log, 3, commit=True, coordinator_epoch=9)
    loaded = ProducerState()
    for entry in decode_snapshot(encode_snapshot(log.producers)):
        loaded.load(entry)
    assert encode_snapshot(loaded) == encode_snapshot(log.producers)
    assert loaded.producers[2].batches[-1].first_sequence == MAX_SEQUENCE - 1
    assert loaded.first_unstable_offset == 3


@pytest.mark.parametrize("cut", [0, 3, 9, -1])
def test_a_snapshot_that_is_damaged_is_refused(cut):
    log = new_log()
    produce(log, 1, 0)
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(encode_snapshot(log.producers)[:cut])


# Transactions


def test_an_open_transaction_holds_the_last_stable_offset_back():
    log = new_log()
    append(log)
    produce(log, 1, 0, transactional=True)
    append(log)
    assert log.first_unstable_offset == 1
    assert log.last_stable_offset(3) == 1
    end_transaction(log, 1, commit=True)
    assert log.first_unstable_offset is None
    assert log.last_stable_offset(3) == 1, "the marker at 3 is not below the high watermark"
    assert log.last_stable_offset(4) == 4


def test_transactions_overlap():
    log = new_log()
    produce(log, 1, 0, transactional=True)
    produce(log, 2, 0, transactional=True)
    end_transaction(log, 1, commit=False)
    assert log.last_stable_offset(log.log_end_offset) == 1
    produce(log, 1, 1, transactional=True)
    end_transaction(log, 2, commit=False)
    assert log.last_stable_offset(log.log_end_offset) == 3
    end_transaction(log, 1, commit=True)
    assert log.last_stable_offset(log.log_end_offset) == log.log_end_offset
    result = log.read(0, 10_000, aborted=True)
    assert result.aborted == [(1, 0), (2, 1)]
    assert log.read(4, 10_000, aborted=True).aborted == [(2, 1)]
    assert log.read(5, 10_000, aborted=True).aborted == []


def test_a_plain_batch_inside_a_transaction_is_refused():
    log = new_log()
    produce(log, 1, 0, transactional=True)
    assert code_of(lambda: produce(log, 1, 1)) is ErrorCode.INVALID_TXN_STATE


def test_a_marker_fences_older_epochs_and_older_coordinators():
    log = new_log()
    produce(log, 1, 0, transactional=True, epoch=3)
    assert code_of(lambda: end_transaction(log, 1, commit=True, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH
    end_transaction(log, 1, commit=False, epoch=4, coordinator_epoch=5)
    assert code_of(lambda: produce(log, 1, 1, epoch=3)) is ErrorCode.INVALID_PRODUCER_EPOCH
    fenced = code_of(lambda: end_transaction(log, 1, commit=True, epoch=4, coordinator_epoch=4))
    assert fenced is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_from_version_2_on_a_marker_bumps_the_epoch():
    log = new_log()
    produce(log, 1, 0, transactional=True, epoch=3)
    marker = {"origin": Origin.COORDINATOR, "transaction_version": 2}
    from barnabas.wire.records import encode_end_marker

    def mark(epoch: int):
        data = encode_end_marker(commit=True, coordinator_epoch=0, producer_id=1, producer_epoch=epoch, timestamp=NOW)
        return append(log, data, **marker)

    assert code_of(lambda: mark(3)) is ErrorCode.INVALID_PRODUCER_EPOCH
    mark(4)
    mark(4)  # a repetition after the end is harmless
    produce(log, 1, 0, transactional=True, epoch=4)


def test_the_group_coordinator_writes_transactional_batches_without_sequences():
    log = new_log()
    data = batch(producer_id=1, producer_epoch=0, transactional=True)
    append(log, data, origin=Origin.COORDINATOR)
    append(log, data, origin=Origin.COORDINATOR)
    assert log.first_unstable_offset == 0


@pytest.mark.parametrize("clean", [True, False])
def test_transactions_survive_a_restart(clean):
    disk = SimDisk()
    log = open_log(disk)
    for number in range(12):
        produce(log, 1, number * 3, 3, transactional=True)
        append(log)
        end_transaction(log, 1, commit=number % 3 != 0)
    produce(log, 2, 0, transactional=True)
    append(log)
    assert len(log.segments) > 3
    expected = log.aborted_transactions(0, log.log_end_offset)
    state = encode_snapshot(log.producers)
    unstable = log.first_unstable_offset
    if clean:
        log.close()
    log = open_log(disk, clean=clean)
    assert log.aborted_transactions(0, log.log_end_offset) == expected
    assert len(expected) == 4
    assert encode_snapshot(log.producers) == state
    assert log.first_unstable_offset == unstable
    end_transaction(log, 2, commit=False)
    assert log.last_stable_offset(log.log_end_offset) == log.log_end_offset


def test_truncation_reopens_a_transaction():
    log = new_log()
    produce(log, 1, 0, transactional=True)
    end_transaction(log, 1, commit=False)
    append(log)
    assert len(log.aborted_transactions(0, 10)) == 1
    log.truncate_to(1)
    assert log.aborted_transactions(0, 10) == []
    assert log.first_unstable_offset == 0
    end_transaction(log, 1, commit=True)
    assert log.aborted_transactions(0, 10) == []


def test_a_follower_keeps_the_same_state():
    leader, follower = new_log(), new_log()
    for number in range(6):
        produce(leader, 1, number * 2, 2, transactional=True)
        end_transaction(leader, 1, commit=number % 2 == 0)
    offset = 0
    while (result := leader.read(offset, 400)).records is not None:
        follower.append_as_follower(memoryview(result.records.read()))
        offset = result.next_offset
    assert encode_snapshot(follower.producers) == encode_snapshot(leader.producers)
    assert follower.aborted_transactions(0, 99) == leader.aborted_transactions(0, 99)
    assert offsets(follower) == offsets(leader)
    assert small().segment_bytes == 1000
