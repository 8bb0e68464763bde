"""Replay of a log: all sound records, and an error that names the position of damage."""

from __future__ import annotations

import pytest

from barnabas.sim.disk import SimDisk
from barnabas.storage.errors import LogOffline
from barnabas.storage.log import Log
from barnabas.storage.replay import checked_batches
from barnabas.storage.scan import CHUNK_BYTES
from barnabas.wire.batch import CorruptBatch
from tests.unit.storage.kit import append, batch, open_log, small


def offsets(log: Log, start_offset: int = 0) -> list[int]:
    return [header.base_offset for _, _, header in checked_batches(log, start_offset)]


def test_all_segments_are_read_from_an_offset_on() -> None:
    log = open_log(SimDisk())
    for _ in range(50):
        append(log, batch(2))
    assert len(log.segments) > 2
    assert offsets(log) == list(range(0, 100, 2))
    assert offsets(log, 71) == list(range(70, 100, 2))
    assert offsets(log, 100) == []


def test_batches_larger_than_a_chunk_are_read() -> None:
    log = open_log(SimDisk(), small(segment_bytes=1 << 30, max_message_bytes=1 << 30))
    for size in (CHUNK_BYTES // 2 + 1, 10, CHUNK_BYTES + 1, CHUNK_BYTES * 2, 10):
        append(log, batch(value=bytes(size)))
    assert offsets(log) == list(range(5))


@pytest.mark.parametrize(("field", "at"), [("length", 9), ("base offset", 1), ("magic", 16), ("value", 70)])
def test_damage_is_an_error_that_names_file_and_offset(field: str, at: int) -> None:
    disk = SimDisk()
    log = open_log(disk, small(segment_bytes=1 << 20))
    for _ in range(5):
        append(log)
    file = disk.open(f"{log.segments[0].name}.log")
    place = file.size() // 5 * 3 + at
    file.write([bytes([file.read(1, place)[0] ^ 1])], place)
    found: list[int] = []
    with pytest.raises(CorruptBatch, match=r"00000\.log is damaged at byte \d+, offset 3 "):
        found.extend(header.base_offset for _, _, header in checked_batches(log, 0))
    assert found == [0, 1, 2]


def test_an_offline_log_is_not_read() -> None:
    log = open_log(SimDisk())
    append(log)
    log.fail("gone")
    with pytest.raises(LogOffline):
        offsets(log)
