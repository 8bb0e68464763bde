"""A group shard on a log: appends, reloading, and waiting requests when the log fails."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.group import records as framing
from barnabas.core.group.offsets import CommittedOffset, commit_record
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.runtime import coordinator_log
from barnabas.runtime.coordinator import java_hash, partition_of
from barnabas.runtime.flush import RETRY_MS
from barnabas.sim.disk import Fault
from barnabas.wire.api.heartbeat import HeartbeatRequest
from barnabas.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.wire.batch import read_header
from barnabas.wire.compression import Codec
from barnabas.wire.records import Record, encode_batch, encode_end_marker
from tests.unit.runtime.group_kit import Kit
from tests.unit.storage.kit import NOW, small


@pytest.fixture
def kit() -> Kit:
    return Kit()


def test_the_partition_of_a_group_is_kafkas() -> None:
    with (Path(__file__).parents[2] / "data" / "golden" / "groups.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert any(int(row["hash"]) < 0 for row in rows)
    for row in rows:
        name = bytes.fromhex(row["group"]).decode()
        assert java_hash(name) == int(row["hash"])
        assert partition_of(name, 50) == int(row["of_50"])
    assert [partition_of(name, 50) for name in ("my-group", "orders")] == [12, 31]
    smallest = "polygenelubricants"  # the one hash without an absolute value
    assert java_hash(smallest) == -(1 << 31)
    assert partition_of(smallest, 50) == 0


def test_what_was_committed_is_there_after_loading(kit: Kit) -> None:
    (answer,) = kit.commit(5, 6)
    assert answer.topics[0].partitions[0].error_code == 0
    kit.commit(7)
    assert kit.offsets(kit.new_shard()) == {0: 7, 1: 6}


def test_a_settled_group_is_there_after_loading(kit: Kit) -> None:
    (joined,) = kit.join()
    given = [SyncGroupRequestAssignment(joined.member_id, b"mine")]
    kit.ask(SyncGroupRequest("g", 1, joined.member_id, assignments=given))
    again = kit.new_shard().machine.groups["g"]
    assert (again.generation, again.members[joined.member_id].assignment) == (1, b"mine")


def test_a_failed_append_sends_everyone_back_to_what_is_recorded(kit: Kit) -> None:
    (joined,) = kit.join()
    waiting = kit.join()
    assert waiting == []
    kit.join(joined.member_id)
    follower = kit.ask(SyncGroupRequest("g", 2, waiting[0].member_id))
    assert follower == []
    kit.disk.fail_next(count=1)
    (answer,) = kit.ask(SyncGroupRequest("g", 2, joined.member_id))
    assert isinstance(answer, ApiError)
    assert len(follower) == 1
    assert isinstance(follower[0], ApiError)
    (beat,) = kit.ask(HeartbeatRequest("g", 2, joined.member_id))
    assert beat.error_code == ErrorCode.UNKNOWN_MEMBER_ID, "the generation was never recorded"
    (again,) = kit.join()
    assert again.error_code == 0


def test_a_failed_commit_disturbs_nobody(kit: Kit) -> None:
    (joined,) = kit.join()
    given = [SyncGroupRequestAssignment(joined.member_id, b"mine")]
    kit.ask(SyncGroupRequest("g", 1, joined.member_id, assignments=given))
    waiting = kit.join()
    kit.disk.fail_next(count=1)
    parts = [OffsetCommitRequestPartition(0, 5)]
    request = OffsetCommitRequest("g", 1, joined.member_id, topics=[OffsetCommitRequestTopic("t", partitions=parts)])
    (answer,) = kit.ask(request, 9)
    assert isinstance(answer, ApiError)
    assert kit.offsets() == {}
    assert waiting == [], "it waits on"
    kit.join(joined.member_id)
    assert waiting[0].error_code == 0


def test_offsets_of_transactions(kit: Kit) -> None:
    kit.commit(1, 1, 1)

    def transactional(producer_id: int, partition: int, offset: int) -> None:
        key, value = framing.encode(commit_record("g", ("t", partition), CommittedOffset(offset, -1, "", NOW)))
        records = [Record(-1, NOW, key, value)]
        kit.append(
            encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
        )

    transactional(7, 0, 10)
    kit.append(encode_end_marker(commit=True, coordinator_epoch=0, producer_id=7, producer_epoch=0, timestamp=NOW))
    transactional(8, 1, 10)
    kit.append(encode_end_marker(commit=False, coordinator_epoch=0, producer_id=8, producer_epoch=0, timestamp=NOW))
    transactional(9, 2, 10)
    kit.shard = kit.new_shard()
    assert kit.offsets() == {0: 10, 1: 1, 2: 1}
    wanted = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)], require_stable=True)
    (answer,) = kit.ask(wanted)
    codes = {part.partition_index: part.error_code for part in answer.groups[0].topics[0].partitions}
    assert codes == {0: 0, 1: 0, 2: ErrorCode.UNSTABLE_OFFSET_COMMIT}


def test_unknown_records_are_passed_over(kit: Kit) -> None:
    kit.commit(3)
    strange = [
        Record(-1, NOW, b"\0\x03\0\x01g", b"\0\0"),
        Record(-1, NOW, b"\0\x01", b"\0\x04"),
        Record(-1, NOW, b"", None),
        Record(-1, NOW, b"\0\x02\0\x01g", b"\0\x63"),
    ]
    kit.append(encode_batch(strange))
    assert kit.offsets(kit.new_shard()) == {0: 3}


def test_a_log_that_cannot_be_read_serves_nobody(kit: Kit) -> None:
    kit.commit(3)
    kit.partition.log.fail("gone")
    kit.shard = kit.new_shard()
    assert kit.reports == ["a coordinator cannot be loaded"]
    (answer,) = kit.commit(4)
    assert isinstance(answer, ApiError)
    assert answer.code is ErrorCode.NOT_COORDINATOR
    kit.shard.close()


def test_no_flipped_bit_changes_what_is_loaded(kit: Kit) -> None:
    """Base offset and leader epoch are outside of the checksum: a flip there may go unnoticed, and does no harm."""
    for offset in (111, 777, 333):
        kit.commit(offset, offset)
    (path,) = [path for _, operation, path in kit.disk.log if operation == "create" and path.endswith(".log")]
    file = kit.disk.open(path)
    refused = 0
    for position in range(file.size()):
        byte = file.read(1, position)
        file.write([bytes([byte[0] ^ 0x20])], position)
        kit.shard = kit.new_shard()
        (answer,) = kit.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)]))
        if isinstance(answer, ApiError):
            refused += 1
            assert answer.code is ErrorCode.NOT_COORDINATOR
            assert path in kit.reasons[-1]
        else:
            assert kit.offsets() == {0: 333, 1: 333}
        file.write([byte], position)
    assert refused > file.size() * 0.9
    assert kit.offsets(kit.new_shard()) == {0: 333, 1: 333}


def test_closing_answers_those_who_wait(kit: Kit) -> None:
    kit.join()
    waiting = kit.join()
    kit.shard.close()
    assert [answer.code for answer in waiting] == [ErrorCode.NOT_COORDINATOR]
    kit.clock.wait(10_000)
    assert len(waiting) == 1


def test_sessions_end_to_the_millisecond_and_then_nothing_ticks(kit: Kit) -> None:
    (joined,) = kit.join()
    given = [SyncGroupRequestAssignment(joined.member_id, b"mine")]
    kit.ask(SyncGroupRequest("g", 1, joined.member_id, assignments=given))
    kit.clock.wait(2345)
    kit.ask(HeartbeatRequest("g", 1, joined.member_id))
    kit.clock.wait(5999)
    assert kit.shard.machine.groups["g"].members
    kit.clock.wait(1)
    assert not kit.shard.machine.groups["g"].members
    assert kit.clock.calls == []


def test_sessions_begin_anew_after_loading(kit: Kit) -> None:
    (joined,) = kit.join()
    kit.ask(SyncGroupRequest("g", 1, joined.member_id))
    kit.clock.wait(3000)
    kit.restart()
    kit.clock.wait(5999)
    assert kit.shard.machine.groups["g"].members
    kit.clock.wait(1)
    assert not kit.shard.machine.groups["g"].members


def test_more_records_than_a_batch_may_hold(kit: Kit) -> None:
    kit.partition.update_settings(small(max_message_bytes=2000, segment_bytes=1 << 20))
    kit.commit(*range(100))
    assert kit.offsets(kit.new_shard()) == dict(enumerate(range(100)))


@given(
    key=st.binary(max_size=20) | st.integers(0, 9000).map(bytes) | st.none(),
    value=st.binary(max_size=20) | st.integers(0, 9000).map(bytes) | st.none(),
    timestamps=st.lists(st.integers(0, 300), min_size=1, max_size=2),
    headers=st.lists(st.tuples(st.just("h"), st.binary(max_size=3)), max_size=1),
    codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP]),
)
def test_the_quick_look_at_a_key_is_right(
    key: bytes | None, value: bytes | None, timestamps: list[int], headers: list[Any], codec: Codec
) -> None:
    records = [Record(-1, NOW + at, key, value, tuple(headers)) for at in timestamps]
    data = b"before" + encode_batch(records, codec=codec)
    found = coordinator_log._only_key(data, 6, read_header(data, 6))
    assert found in (None, key)
    if len(records) == 1 and codec is Codec.NONE and key is not None and value is not None and len(key + value) < 4000:
        assert found == key


FIRST_OF_FLUSH = 3
"""Among the operations of a first commit: it creates the segment, writes, and then flushes, the epochs first."""


def durable() -> Kit:
    return Kit(small(segment_bytes=1 << 20, flush_messages=1))


def test_a_commit_is_answered_when_a_flush_that_found_no_room_is_made_up_for() -> None:
    kit = durable()
    kit.disk.fail(kit.disk.operations + FIRST_OF_FLUSH, Fault.ENOSPC)
    waiting = kit.commit(5)
    assert waiting == []
    kit.clock.wait(RETRY_MS)
    assert waiting[0].topics[0].partitions[0].error_code == 0
    assert kit.offsets() == {0: 5}


def test_a_commit_whose_flush_finds_no_room_is_refused_without_another_append() -> None:
    kit = durable()
    for number in range(FIRST_OF_FLUSH, 20):
        kit.disk.fail(kit.disk.operations + number, Fault.ENOSPC)
    waiting, beat = kit.commit(5), kit.ask(HeartbeatRequest("g", 1, "m"))
    kit.clock.wait(RETRY_MS)
    assert [answer.code for answer in waiting + beat] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    read = kit.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)]))
    assert read == [], "it has seen what is not durable"
    kit.disk.heal()
    kit.clock.wait(RETRY_MS)
    assert read[0].groups[0].topics[0].partitions[0].committed_offset == 5
    assert kit.commit(6)[0].topics[0].partitions[0].error_code == 0


def test_a_commit_whose_sync_fails_is_refused() -> None:
    kit = durable()
    kit.commit(5)
    kit.disk.fail(kit.disk.operations + 2, Fault.EIO)
    (answer,) = kit.commit(6)
    assert answer.code is ErrorCode.NOT_COORDINATOR
    assert kit.partition.log.offline is not None
    assert isinstance(kit.commit(7)[0], ApiError)
