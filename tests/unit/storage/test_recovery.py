"""Recovery after a crash."""

from __future__ import annotations

import copy
import random
from contextlib import suppress

import pytest

from barnabas.model.ports import DiskError
from barnabas.sim.disk import Fault, SimDisk
from barnabas.storage.errors import LogOffline
from barnabas.storage.producer_snapshot import encode_snapshot
from barnabas.wire import walk
from tests.unit.storage.kit import (
    DIRECTORY,
    NOW,
    append,
    batch,
    end_transaction,
    offsets,
    open_log,
    produce,
    read_all,
    small,
    values,
)

LOG = f"{DIRECTORY}/{0:020d}.log"


@pytest.fixture(params=[True, False], ids=["native", "python"])
def native(request):
    """Recovery with either twin of the walk."""
    was = walk.NATIVE
    if request.param and not walk.NATIVE_AVAILABLE:
        pytest.skip("the native walk was not built")
    walk.use(request.param)
    yield
    walk.use(was)


@pytest.mark.usefixtures("native")
def test_a_torn_tail_at_every_byte():
    disk = SimDisk()
    log = open_log(disk)
    append(log, batch(2))
    start = log.size_bytes
    append(log, batch(3))
    whole = disk.read_file(LOG)
    for size in range(start, len(whole)):
        torn = SimDisk()
        torn.make_directory(DIRECTORY)
        torn.write_file(LOG, whole[:size])
        log = open_log(torn)
        assert (log.log_end_offset, log.size_bytes) == (2, start)
        assert torn.open(LOG).size() == start
        append(log)
        assert offsets(log) == [0, 1, 2]


@pytest.mark.usefixtures("native")
def test_a_flipped_byte_ends_the_log_before_its_batch():
    disk = SimDisk()
    log = open_log(disk)
    append(log, batch(2))
    start = log.size_bytes
    append(log, batch(3))
    append(log, batch(1))
    whole = disk.read_file(LOG)
    for position in [*range(start + 8, start + 12), start + 16, *range(start + 17, log.size_bytes - 90)]:
        bad = bytearray(whole)
        bad[position] ^= 0xFF
        broken = SimDisk()
        broken.make_directory(DIRECTORY)
        broken.write_file(LOG, bad)
        assert open_log(broken).log_end_offset == 2


@pytest.mark.usefixtures("native")
def test_offsets_that_go_back_end_the_log():
    disk = SimDisk()
    disk.make_directory(DIRECTORY)
    disk.write_file(LOG, batch(3, base_offset=0) + batch(2, base_offset=2))
    assert open_log(disk).log_end_offset == 3


class Reports(list[tuple[str, dict[str, object]]]):
    def __call__(self, event: str, **fields: object) -> None:
        self.append((event, fields))


def test_an_unfinished_write_is_told_and_nothing_is_kept_of_it():
    disk = SimDisk()
    log = open_log(disk)
    append(log, batch(2))
    whole = log.size_bytes
    for rest in (batch()[:70], bytes(5000)):
        disk.open(LOG).write([rest], whole)
        reports = Reports()
        assert open_log(disk, report=reports).log_end_offset == 2
        expected = {"partition": "topic-0", "offset": 2, "bytes": len(rest)}
        assert reports == [("recovery has cut off an unfinished write", expected)]
        assert not aside(disk)
        assert disk.open(LOG).size() == whole


def aside(disk: SimDisk) -> list[str]:
    return [name for name in disk.list(DIRECTORY) if ".corrupt-" in name]


def damaged_log(disk: SimDisk) -> tuple[list[int], dict[str, bytes]]:
    """Several segments, one bit in the second of which is wrong; their bases and their contents before."""
    log = open_log(disk)
    for _ in range(40):
        append(log)
    contents = {segment.name: disk.read_file(f"{segment.name}.log") for segment in log.segments}
    second = log.segments[1]
    *_, (position, _), _last = second.batches()
    damaged = bytearray(contents[second.name])
    damaged[position + 70] ^= 1
    disk.open(f"{second.name}.log").write([bytes(damaged)], 0)
    return list(log.bases), contents


def test_what_follows_a_damaged_segment_is_taken_out_told_and_kept():
    disk = SimDisk()
    bases, contents = damaged_log(disk)
    reports = Reports()
    log = open_log(disk, report=reports)
    end = bases[2] - 2
    assert log.log_end_offset == end
    assert offsets(log) == list(range(end))
    assert log.bases == bases[:2]
    *taken, (event, fields) = reports
    assert [what["offset"] for _, what in taken] == bases[:1:-1]
    for told, what in taken:
        name = f"{DIRECTORY}/{what['offset']:020d}"
        assert told == "recovery has taken a segment out of the log"
        assert what["kept_as"] == f"{name}.log.corrupt-1"
        assert disk.read_file(f"{name}.log.corrupt-1") == contents[name]
        assert what["bytes"] == len(contents[name])
    assert event == "recovery has ended a log at a damaged place"
    assert (fields["offset"], fields["reason"], fields["partition"]) == (end, "CRC", "topic-0")
    second = contents[f"{DIRECTORY}/{bases[1]:020d}"]
    assert disk.read_file(str(fields["kept_as"])) != second[-fields["bytes"] :]
    assert disk.read_file(str(fields["kept_as"]))[71:] == second[-fields["bytes"] :][71:]


def test_what_was_kept_is_neither_loaded_nor_replaced():
    disk = SimDisk()
    bases, _ = damaged_log(disk)
    log = open_log(disk)
    kept = {name: disk.read_file(f"{DIRECTORY}/{name}") for name in aside(disk)}
    for _ in range(40):
        append(log)
    log.close()
    reports = Reports()
    log = open_log(disk, clean=True, report=reports)
    assert not reports
    assert offsets(log) == list(range(log.log_end_offset))
    second = log.segments[1]
    disk.open(f"{second.name}.log").truncate(second.size - 1)
    open_log(disk)
    assert f"{bases[2]:020d}.log.corrupt-1" in kept
    assert {name: disk.read_file(f"{DIRECTORY}/{name}") for name in kept} == kept
    assert any(name.endswith(".log.corrupt-2") for name in aside(disk))


def test_a_full_disk_keeps_nothing_and_says_so():
    disk = SimDisk()
    log = open_log(disk)
    append(log)
    size = log.size_bytes
    append(log)
    disk.open(LOG).write([b"\xff"], size + 70)
    reports = Reports()
    number = next(number for number in range(1, 100) if _keeps_nothing(copy.deepcopy(disk), number, reports))
    assert number > 1
    assert reports[-1][0] == "recovery has ended a log at a damaged place"


def _keeps_nothing(disk: SimDisk, number: int, reports: Reports) -> bool:
    disk.fail(disk.operations + number, Fault.ENOSPC)
    try:
        log = open_log(disk, report=reports)
    except DiskError:
        return False
    assert log.log_end_offset == 1
    return "nothing" in str(reports[-1][1]["kept_as"]) and not aside(disk)


def test_a_crash_in_the_middle_of_taking_segments_out_leaves_no_hole():
    before = SimDisk()
    _, contents = damaged_log(before)
    for settings in (small(), small(cleanup_policy="compact")):
        whole = copy.deepcopy(before)
        open_log(whole, settings)
        for number in range(before.operations + 1, whole.operations + 1):
            disk = copy.deepcopy(before)
            disk.fail(number)
            with suppress(DiskError):
                open_log(disk, settings)
            log = open_log(disk, settings)
            assert offsets(log) == list(range(log.log_end_offset))
            assert len(contents) > len(log.segments) == 2


def test_what_follows_a_torn_segment_is_dropped():
    disk = SimDisk()
    log = open_log(disk)
    for _ in range(40):
        append(log)
    second = log.segments[1]
    disk.open(f"{second.name}.log").truncate(second.size - 1)
    log = open_log(disk)
    assert log.log_end_offset == second.next_offset - 1
    assert offsets(log) == list(range(second.next_offset - 1))
    assert len(log.segments) == 2


def test_a_segment_that_lost_its_end_on_a_batch_boundary_leaves_no_hole():
    disk = SimDisk()
    log = open_log(disk)
    for _ in range(40):
        append(log)
    bases = list(log.bases)
    second = log.segments[1]
    *_, (position, last) = second.batches()
    disk.open(f"{second.name}.log").truncate(position)
    reports = Reports()
    log = open_log(disk, report=reports)
    assert log.log_end_offset == last.base_offset
    assert [fields["offset"] for _, fields in reports] == bases[:1:-1]
    assert {f"{base:020d}.log.corrupt-1" for base in bases[2:]} <= set(aside(disk))


def test_segments_before_the_recovery_point_are_not_read():
    disk = SimDisk()
    log = open_log(disk)
    for _ in range(40):
        append(log)
    first = log.segments[0]
    log.flush()
    point = log.flushed_offset
    before = disk.operations
    log = open_log(disk, recovery_point=point)
    touched = {path for number, operation, path in disk.log if number > before and operation == "read"}
    assert f"{first.name}.log" not in touched
    assert log.flushed_offset == point
    assert offsets(log) == list(range(40))


@pytest.mark.parametrize(
    ("suffix", "damage"),  # a time index of the right size is believed, as in Kafka
    [(".index", "missing"), (".index", "odd"), (".index", "absurd"), (".timeindex", "missing"), (".timeindex", "odd")],
)
def test_bad_indexes_are_rebuilt_when_they_are_used(suffix, damage):
    disk = SimDisk()
    log = open_log(disk)
    for number in range(40):
        append(log, batch(timestamp=NOW + number))
    log.close()
    name = log.segments[0].name + suffix
    before = disk.read_file(name)
    assert before
    if damage == "missing":
        disk.remove(name)
    else:
        disk.write_file(name, before + b"xyz" if damage == "odd" else before + b"\x7f" * 24)
    log = open_log(disk, clean=True)
    assert read_all(log, 0, 150)[-1].offset == 39
    assert log.offset_for_timestamp(NOW + 3).offset == 3
    assert disk.read_file(name) != b""


@pytest.mark.usefixtures("native")
def test_recovery_rebuilds_the_indexes_byte_for_byte():
    disk = SimDisk()
    log = open_log(disk)
    generator = random.Random(5)
    for number in range(60):
        append(
            log,
            batch(1 + number % 4, timestamp=NOW + generator.randrange(1000), leader_epoch=-1),
            leader_epoch=number // 20,
        )
    log.close()
    names = [name for name in disk.list(DIRECTORY) if name.endswith(("index", "checkpoint"))]
    before = {name: disk.read_file(f"{DIRECTORY}/{name}") for name in names}
    for name in names:
        disk.remove(f"{DIRECTORY}/{name}")
    log = open_log(disk)
    log.close()
    assert {name: disk.read_file(f"{DIRECTORY}/{name}") for name in names} == before


def test_leftovers_of_deletion_and_cleaning():
    disk = SimDisk()
    log = open_log(disk)
    for _ in range(40):
        append(log)
    bases = list(log.bases)
    log.close()
    swapped = disk.read_file(f"{DIRECTORY}/{bases[1]:020d}.log")
    # A cleaning of the second segment was finished but not swapped in; one of the third was not finished.
    disk.write_file(f"{DIRECTORY}/{bases[1]:020d}.log.swap", swapped)
    disk.write_file(f"{DIRECTORY}/{bases[2]:020d}.log.cleaned", b"half")
    disk.write_file(f"{DIRECTORY}/{0:020d}.index.deleted", b"")
    disk.write_file(f"{DIRECTORY}/{7:020d}.index", b"")
    log = open_log(disk)
    assert offsets(log) == list(range(40))
    assert log.bases == bases
    left = disk.list(DIRECTORY)
    assert not [name for name in left if name.endswith((".swap", ".cleaned", ".deleted"))]
    assert f"{7:020d}.index" not in left


def test_an_empty_segment_at_the_end_is_the_active_one():
    disk = SimDisk()
    log = open_log(disk)
    append(log)
    log.roll(NOW)
    log = open_log(disk)
    assert log.log_end_offset == 1
    assert append(log).first_offset == 1


def test_rubbish_at_the_end_of_a_clean_log_is_noticed():
    disk = SimDisk()
    log = open_log(disk)
    for _ in range(5):
        append(log)
    log.close()
    file = disk.open(LOG)
    file.write([b"rubbish"], file.size())
    log = open_log(disk, clean=True)
    assert log.log_end_offset == 5
    append(log)
    assert offsets(log) == list(range(6))


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_offset_beyond_the_end_costs_nothing_and_is_told(clean):
    disk = SimDisk()
    log = open_log(disk)
    for number in range(40):
        produce(log, 1, number)
    names = disk.list(DIRECTORY)
    log.close()
    reports = Reports()
    log = open_log(disk, clean=clean, log_start_offset=900, report=reports)
    assert (log.log_start_offset, log.log_end_offset) == (0, 40)
    assert offsets(log) == list(range(40))
    assert set(names) <= set(disk.list(DIRECTORY))
    assert produce(log, 1, 39).duplicate
    assert log.latest_epoch == 0
    ((event, fields),) = reports
    assert event.startswith("the log start offset checkpoint lies beyond the end of the log")
    assert (fields["partition"], fields["log_start_offset"], fields["log_end_offset"]) == ("topic-0", 900, 40)


def test_segments_taken_away_by_hand():
    disk = SimDisk()
    log = open_log(disk)
    append(log)
    log.close()
    disk.open(LOG).truncate(0)
    reports = Reports()
    log = open_log(disk, clean=True, log_start_offset=50, report=reports)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    assert len(reports) == 1
    assert append(log).first_offset == 50


def test_synced_records_that_are_gone_are_told():
    disk = SimDisk()
    log = open_log(disk)
    append(log)
    size = log.size_bytes
    append(log)
    log.close()
    disk.open(LOG).truncate(size)
    reports = Reports()
    assert open_log(disk, clean=True, recovery_point=2, report=reports).log_end_offset == 1
    assert "recovery point" in reports[-1][0]
    assert reports[-1][1] == {"partition": "topic-0", "recovery_point": 2, "log_end_offset": 1}


def test_unclean_epochs_are_found_in_the_batches():
    disk = SimDisk()
    log = open_log(disk)
    for leader_epoch in range(6):
        append(log, leader_epoch=leader_epoch)
    log = open_log(disk)
    assert log.epochs.entries == [(epoch, epoch) for epoch in range(6)]


def test_epochs_beyond_the_end_are_dropped():
    disk = SimDisk()
    log = open_log(disk)
    append(log, leader_epoch=0)
    size = log.size_bytes
    append(log, leader_epoch=1)
    log.close()
    disk.open(LOG).truncate(size)
    assert open_log(disk).epochs.entries == [(0, 0)]


def test_a_close_after_a_flush_still_stores_everything():
    disk = SimDisk()
    log = open_log(disk)
    produce(log, 1, 0)
    log.flush()
    log.close()
    log = open_log(disk, clean=True)
    assert produce(log, 1, 0).duplicate


# Power cuts


@pytest.mark.parametrize("seed", range(150))
def test_a_power_cut_takes_nothing_that_was_flushed(seed):
    generator = random.Random(seed)
    disk = SimDisk(seed)
    log = open_log(disk, on_failure=None)
    point = 0
    for _round in range(3):
        expected = values(log)
        kept = log.log_end_offset
        for number in range(generator.randrange(1, 40)):
            value = b"%d-%d" % (seed, number) * generator.randrange(1, 9)
            producer = generator.randrange(0, 3)
            if producer:
                entry = log.producers.producers.get(producer)
                produce(log, producer, entry.last_sequence + 1 if entry else 0, value=value)
            else:
                append(log, batch(generator.randrange(1, 4), value=value), leader_epoch=_round)
            if generator.random() < 0.15:
                log.flush()
                kept, point = log.log_end_offset, log.flushed_offset
                expected = values(log)
        after = values(log)
        disk.crash()
        log = open_log(disk, recovery_point=point)
        assert log.log_end_offset >= kept
        found = values(log)
        assert found[: len(expected)] == expected
        assert found == after[: len(found)]
        assert offsets(log) == list(range(log.log_end_offset))
        # What the log remembers of its producers is what is in it.
        assert encode_snapshot(log.producers) == encode_snapshot(open_log(copy.deepcopy(disk)).producers)


# Failing disks


def _script(log, acknowledged: list[bytes]) -> None:
    """A life of a log; what is acknowledged is noted."""
    for number in range(14):
        value = b"value-%d" % number
        try:
            if number % 4 == 1:
                entry = log.producers.producers.get(1)
                produce(log, 1, entry.last_sequence + 1 if entry else 0, value=value, transactional=True)
            else:
                append(log, batch(value=value), leader_epoch=number // 5)
            acknowledged.append(value)
            if number == 9:
                end_transaction(log, 1, commit=False)
                acknowledged.append(b"marker")
        except DiskError:
            pass
        if number % 3 == 0:
            log.flush()
    log.delete_records_before(2)
    log.close()


def _count_operations() -> int:
    disk = SimDisk()
    _script(open_log(disk, small(segment_bytes=500)), [])
    return disk.operations


@pytest.mark.parametrize("fault", list(Fault))
def test_any_single_failing_operation_loses_nothing_that_was_acknowledged(fault):
    for number in range(1, _count_operations() + 1):
        disk = SimDisk(number)
        disk.fail(number, fault)
        acknowledged: list[bytes] = []
        failures: list[str] = []
        try:
            log = open_log(
                disk, small(segment_bytes=500), on_failure=lambda _log, reason, to=failures: to.append(reason)
            )
            _script(log, acknowledged)
        except LogOffline:
            assert failures, "a log that goes offline says so"
            with pytest.raises(LogOffline):
                append(log)
            with pytest.raises(LogOffline):
                log.read(0, 100)
        except DiskError:
            assert not acknowledged or number > 3
        log = open_log(disk, small(segment_bytes=500))
        found = [value if value is not None and value.startswith(b"value") else b"marker" for value in values(log)]
        present = iter(found)
        assert all(value in present for value in acknowledged), (number, fault, acknowledged, found)
        assert append(log).first_offset == log.log_end_offset - 1


def test_a_torn_write_that_can_be_cut_leaves_the_log_usable():
    disk = SimDisk()
    log = open_log(disk)
    append(log)
    disk.fail_next(Fault.SHORT_WRITE)
    with pytest.raises(DiskError):
        append(log)
    append(log)
    assert offsets(log) == [0, 1]


def test_a_torn_write_that_cannot_be_cut_takes_the_log_offline():
    disk = SimDisk()
    failures: list[str] = []
    log = open_log(disk, on_failure=lambda _log, reason: failures.append(reason))
    append(log)
    disk.fail_next(Fault.SHORT_WRITE)
    disk.fail(disk.operations + 2)
    with pytest.raises(LogOffline):
        append(log)
    assert len(failures) == 1
    with pytest.raises(LogOffline, match="cutting the torn write"):
        append(log)
    log.close()
    assert open_log(disk).log_end_offset == 1


def test_a_failed_sync_takes_the_log_offline_for_good():
    disk = SimDisk()
    log = open_log(disk)
    append(log)
    log.flush()
    append(log)
    disk.fail_next()
    with pytest.raises(LogOffline, match="sync"):
        log.flush()
    with pytest.raises(LogOffline):
        log.flush()
    assert log.flushed_offset == 1


def test_flushing_off_the_loop():
    disk = SimDisk()
    disk.is_slow = True
    log = open_log(disk)
    append(log)
    task = log.begin_flush()
    done: list[object] = []
    for item in task.files:
        disk.sync(item.file, done.append)
    append(log)
    assert done == []
    disk.release()
    log.name_epochs(task)
    for folder in task.folders:
        disk.sync_names(folder, done.append)
    disk.release()
    assert done == [None] * 4  # the log, its epochs, its folder and that one's name
    log.finish_flush(task)
    assert (log.flushed_offset, log.unflushed_messages) == (1, 1)
    disk.fail_next()
    task = log.begin_flush()
    disk.sync(task.files[0].file, done.append)
    disk.release()
    with pytest.raises(LogOffline):
        log.finish_flush(task, done[-1])


@pytest.mark.parametrize("policy", [("delete",), ("compact",)])
@pytest.mark.parametrize("ending", ["clean", "killed", "killed after a flush"])
def test_a_roll_that_finds_no_room_leaves_no_segment_behind(policy: tuple[str, ...], ending: str):
    """With preallocation a new segment needs room; small batches go on in the old one meanwhile."""
    disk = SimDisk()
    settings = small(preallocate=True, cleanup_policy=policy)
    log = open_log(disk, settings)
    append(log, batch(value=b"v" * 700))
    disk.fail_next_of("allocate", Fault.ENOSPC)
    with pytest.raises(DiskError):
        append(log, batch(value=b"v" * 700))
    append(log, batch(value=b"small"))
    append(log, batch(value=b"small"))
    assert [name for name in disk.list(DIRECTORY) if name.endswith(".log")] == ["00000000000000000000.log"]
    if ending == "clean":
        log.close()
    elif ending == "killed after a flush":
        log.flush()
    again = open_log(disk, settings, clean=ending == "clean", recovery_point=log.flushed_offset)
    assert again.log_end_offset == 3
    assert offsets(again) == [0, 1, 2]


@pytest.mark.parametrize("policy", [("delete",), ("compact",)])
@pytest.mark.parametrize("clean", [True, False])
def test_an_empty_file_that_an_earlier_version_left_is_not_the_end(policy: tuple[str, ...], clean: bool):
    disk = SimDisk()
    settings = small(cleanup_policy=policy)
    log = open_log(disk, settings)
    for _ in range(3):
        append(log)
    log.close()
    disk.open(f"{DIRECTORY}/{1:020d}.log", create=True)
    again = open_log(disk, settings, clean=clean, recovery_point=3)
    assert (again.log_end_offset, offsets(again)) == (3, [0, 1, 2])
    assert append(again).first_offset == 3


@pytest.mark.parametrize("is_found_again", [False, True])
def test_a_power_cut_keeps_the_aborted_transactions_of_flushed_segments(is_found_again):
    """The segment is flushed while it is active, and lies behind the recovery point when it has rolled."""
    for seed in range(20):
        disk = SimDisk(seed)
        log = open_log(disk)
        produce(log, 7, 0, transactional=True)
        end_transaction(log, 7, commit=False)
        log.flush()
        if is_found_again:
            disk.kill()
            log = open_log(disk, clean=False, recovery_point=log.flushed_offset)
        log.roll(NOW)
        append(log)
        log.flush()
        disk.crash()
        log = open_log(disk, clean=False, recovery_point=log.flushed_offset)
        assert [entry.producer_id for entry in log.aborted_transactions(0, log.log_end_offset)] == [7]
