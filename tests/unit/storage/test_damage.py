"""Damaged files of a cleanly closed log: what can be read is read, and nothing is skipped silently."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from barnabas.sim.disk import SimDisk
from barnabas.storage.log import Log
from barnabas.storage.segment import Segment
from barnabas.wire.batch import CorruptBatch, iterate
from tests.unit.storage.kit import NOW, append, batch, offsets, open_log, small

COUNT = 40
SIZES = (1, 200, 1 << 20)


class Damaged:
    """A closed log of one record a batch, whose second segment is to be damaged."""

    def __init__(self, **settings: Any) -> None:
        self.disk = SimDisk()
        self.settings = small(**settings)
        self.log = open_log(self.disk, self.settings)
        for number in range(COUNT):
            append(self.log, batch(timestamp=NOW + number))
        self.log.close()
        self.second: Segment = self.log.segments[1]
        self.after: int = self.log.segments[2].base_offset
        self.reports: list[tuple[str, dict[str, Any]]] = []

    def path(self, suffix: str = ".log") -> str:
        return self.second.name + suffix

    def position(self, offset: int) -> int:
        return next(at for at, header in iterate(self.disk.read_file(self.path())) if header.base_offset == offset)

    def write(self, position: int, data: bytes, suffix: str = ".log") -> None:
        self.disk.open(self.path(suffix)).write([data], position)

    def open(self, *, clean: bool = True) -> Log:
        def report(event: str, **fields: Any) -> None:
            self.reports.append((event, fields))

        return open_log(self.disk, self.settings, clean=clean, report=report)


def outcome(log: Log, offset: int, max_bytes: int) -> str:
    try:
        result = log.read(offset, max_bytes)
    except CorruptBatch:
        return "corrupt"
    assert result.records is not None
    base_offset = struct.unpack_from(">q", result.records.read())[0]
    return "right" if base_offset == offset else f"the batch at {base_offset}"


@pytest.mark.parametrize("max_bytes", SIZES)
def test_zeros_to_the_end_of_a_closed_segment_are_not_passed_over(max_bytes: int) -> None:
    damaged = Damaged()
    first = damaged.second.base_offset + 4
    start = damaged.position(first)
    damaged.write(start, bytes(damaged.second.size - start))
    log = damaged.open()
    found = {offset: outcome(log, offset, max_bytes) for offset in range(COUNT)}
    assert found == {offset: "corrupt" if first <= offset < damaged.after else "right" for offset in range(COUNT)}
    ((event, fields),) = damaged.reports
    assert "damaged" in event
    assert (fields["file"], fields["position"]) == (damaged.path(), start)


@pytest.mark.parametrize("max_bytes", SIZES)
def test_a_damaged_header_costs_its_own_batch_and_those_before_the_next_index_entry(max_bytes: int) -> None:
    damaged = Damaged()
    first = damaged.second.base_offset + 4
    damaged.write(damaged.position(first), bytes(61))
    log = damaged.open()
    found = {offset: outcome(log, offset, max_bytes) for offset in range(COUNT)}
    corrupt = {offset for offset, what in found.items() if what == "corrupt"}
    assert first in corrupt <= {first, first + 1, first + 2}
    assert all(what == "right" for offset, what in found.items() if offset not in corrupt)


def test_a_read_ends_before_the_damage_and_the_next_one_is_told() -> None:
    damaged = Damaged()
    base = damaged.second.base_offset
    one = damaged.position(base + 1)
    damaged.write(damaged.position(base + 4), b"\xff" * 61)
    log = damaged.open()
    result = log.read(base, 5 * one - 1)
    assert (result.size, result.next_offset) == (4 * one, base + 4)
    for max_bytes in SIZES:
        with pytest.raises(CorruptBatch):
            log.read(base + 4, max_bytes)


def test_the_place_behind_a_batch_that_was_too_large_is_not_remembered_where_it_is_damaged() -> None:
    damaged = Damaged()
    last = damaged.after - 1
    damaged.write(damaged.position(last), bytes(61))
    log = damaged.open()
    assert log.read(last - 1, 1).next_offset == last
    with pytest.raises(CorruptBatch):
        log.read(last, 1 << 20)


@pytest.mark.parametrize("bit", range(64))
@pytest.mark.parametrize("max_bytes", SIZES)
def test_any_bit_of_an_index_entry_costs_nothing(bit: int, max_bytes: int) -> None:
    damaged = Damaged()
    before = damaged.disk.read_file(damaged.path(".index"))
    entry = 8 * (len(before) // 16)
    number = int.from_bytes(before[entry : entry + 8]) ^ (1 << bit)
    damaged.write(entry, number.to_bytes(8), ".index")
    log = damaged.open()
    assert {outcome(log, offset, max_bytes) for offset in range(COUNT)} == {"right"}
    if damaged.reports:  # unless nobody was led astray
        ((event, _),) = damaged.reports
        assert event == "an index was rebuilt"
        assert damaged.disk.read_file(damaged.path(".index")) == before


@pytest.mark.parametrize("bit", range(32))
def test_any_bit_of_an_offset_in_a_time_index_is_no_wrong_answer(bit: int) -> None:
    damaged = Damaged()
    before = damaged.disk.read_file(damaged.path(".timeindex"))
    entry = 12 * (len(before) // 24)
    number = int.from_bytes(before[entry + 8 : entry + 12]) ^ (1 << bit)
    damaged.write(entry + 8, number.to_bytes(4), ".timeindex")
    log = damaged.open()
    timestamp = int.from_bytes(before[entry : entry + 8]) + 1
    found = log.offset_for_timestamp(timestamp)
    assert found is not None
    lost = number - int.from_bytes(before[entry + 8 : entry + 12])
    if not 0 < lost < damaged.after - damaged.second.base_offset:  # a sensible offset is believed, as in Kafka
        assert found.timestamp == timestamp


def test_an_index_that_leads_to_sound_batches_behind_the_damage_is_kept() -> None:
    damaged = Damaged()
    damaged.write(damaged.position(damaged.second.base_offset + 2), bytes(61))
    before = damaged.disk.read_file(damaged.path(".index"))
    log = damaged.open()
    with pytest.raises(CorruptBatch):
        log.read(damaged.second.base_offset + 2, 100)
    assert outcome(log, damaged.after - 1, 100) == "right"
    assert damaged.disk.read_file(damaged.path(".index")) == before


@pytest.mark.parametrize("bit", range(64))
def test_any_bit_of_a_batchs_offset_sends_nobody_past_it(bit: int) -> None:
    damaged = Damaged()
    first = damaged.second.base_offset + 4
    damaged.write(damaged.position(first), (first ^ (1 << bit)).to_bytes(8))
    log = damaged.open()
    for offset in range(damaged.second.base_offset, damaged.after):
        log.forget_places()  # as a reader that has just come
        assert outcome(log, offset, 1) in (("corrupt",) if offset == first else ("right", "corrupt"))


def test_times_in_a_damaged_place_are_not_looked_for_behind_it() -> None:
    damaged = Damaged()
    first = damaged.second.base_offset + 4
    start = damaged.position(first)
    damaged.write(start, bytes(damaged.second.size - start))
    log = damaged.open()
    for offset in range(COUNT):
        if first <= offset < damaged.after:
            with pytest.raises(CorruptBatch):
                log.offset_for_timestamp(NOW + offset)
        else:
            found = log.offset_for_timestamp(NOW + offset)
            assert found is not None
            assert found.offset == offset


@pytest.mark.parametrize("lost_bytes", [0, 10])
def test_the_end_of_a_segment_that_was_cut_off_is_missed(lost_bytes: int) -> None:
    damaged = Damaged()
    first = damaged.after - 4
    damaged.disk.open(damaged.path()).truncate(damaged.position(first) + lost_bytes)
    log = damaged.open()
    found = {offset: outcome(log, offset, 1) for offset in range(COUNT)}
    assert found == {offset: "corrupt" if first <= offset < damaged.after else "right" for offset in range(COUNT)}
    events = [event for event, _ in damaged.reports]
    assert events[0] == "an index was rebuilt"
    assert "damaged" in events[1] if lost_bytes else "lost its end" in events[1]
    assert len(events) == 2


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_a_hole_that_compaction_left_is_stepped_over(policy: str) -> None:
    """Kafka's cleaner takes the last batch of a segment away too; and the policy may have been changed since."""
    damaged = Damaged(cleanup_policy=policy)
    base = damaged.second.base_offset
    whole = damaged.disk.read_file(damaged.path())
    kept = [whole[at : at + header.size] for at, header in iterate(whole) if header.base_offset in (base, base + 3)]
    damaged.disk.write_file(damaged.path(), b"".join(kept))
    for suffix in (".index", ".timeindex"):
        damaged.disk.remove(damaged.path(suffix))
    for clean in (True, False):
        log = damaged.open(clean=clean)
        assert log.read(base + 1, 100).first_offset == base + 3
        assert log.read(base + 4, 100).first_offset == damaged.after
        assert offsets(log) == [*range(base + 1), base + 3, *range(damaged.after, COUNT)]


def test_reads_of_a_sound_log_look_at_nothing_twice() -> None:
    damaged = Damaged()
    log = damaged.open()
    before = damaged.disk.operations
    offset, reads = 0, 0
    while offset < COUNT:
        offset, reads = log.read(offset, 300).next_offset, reads + 1
    touched = [path for number, what, path in damaged.disk.log if number > before and what == "read"]
    assert len([path for path in touched if path.endswith(".log")]) <= reads + len(log.segments)
    assert not damaged.reports
