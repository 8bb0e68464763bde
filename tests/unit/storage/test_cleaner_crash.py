"""A crash or disk error at every file operation of a cleaning: each segment is the old one or the new one."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from barnabas.model.ports import DiskError
from barnabas.sim.disk import Fault, SimDisk
from barnabas.storage.errors import LogOffline
from barnabas.storage.log import Log
from barnabas.wire.batch import BatchHeader
from barnabas.wire.records import ControlType, control_key, decode_batch
from tests.unit.storage import cleaning
from tests.unit.storage.cleaning import clean, compacted, headers, roll
from tests.unit.storage.kit import append, batch, end_transaction, open_log, produce, read_all

SETTINGS = compacted(segment_bytes=700)


def dirty_log(seed: int) -> Log:
    """Several groups of segments, with transactions, producers and tombstones."""
    log = open_log(SimDisk(seed), SETTINGS)
    for number in range(24):
        append(log, batch(2, key=b"%d" % (number % 4), value=b"%d" % number if number % 5 else None))
        if number % 6 == 0:
            produce(log, 7, number // 6, transactional=True)
            end_transaction(log, 7, commit=number % 12 == 0)
    roll(log)
    log.disk.sync_directory(log.directory)
    return log


def dies_at(disk: SimDisk, number: int) -> None:
    fault = disk.fault

    def dying(operation: str, path: str) -> Fault | None:
        if disk.operations + 1 >= number:
            disk.power_off()
        return fault(operation, path)

    disk.fault = dying  # type: ignore[method-assign]


def attempt(log: Log) -> None:
    with contextlib.suppress(DiskError, LogOffline):
        clean(log)


def outcomes() -> list[list[BatchHeader]]:
    """The log after each of its groups has been swapped."""
    found = []
    log = dirty_log(0)
    found.append(headers(log))
    finish = cleaning.finish_swap

    def finish_and_look(*arguments: Any) -> None:
        finish(*arguments)
        found.append(headers(log))

    cleaning.finish_swap = finish_and_look
    try:
        clean(log)
    finally:
        cleaning.finish_swap = finish
    return found


def operations() -> int:
    log = dirty_log(0)
    before = log.disk.operations
    clean(log)
    return log.disk.operations - before


POSSIBLE = outcomes()
COUNT = operations()


@pytest.mark.parametrize("seed", range(6))
def test_killed_at_every_operation(seed: int) -> None:
    assert len(POSSIBLE) > 3
    seen = set()
    for number in range(1, COUNT + 2):
        log = dirty_log(seed)
        disk = log.disk
        dies_at(disk, disk.operations + number)
        attempt(log)
        del disk.fault
        disk.crash()
        again = open_log(disk, SETTINGS, clean=False, recovery_point=log.flushed_offset)
        found = headers(again)
        assert found in POSSIBLE, f"operation {number}"
        seen.add(POSSIBLE.index(found))
        _check(again)
    assert seen == set(range(len(POSSIBLE)))


def _check(log: Log) -> None:
    """Usable, with all that the indexes say, and can be cleaned again to the same end."""
    assert not [name for name in log.disk.list(log.directory) if name.endswith((".swap", ".cleaned", ".deleted"))]
    latest = {record.key: record.value for record in read_all(log) if record.key and len(record.key) < 3}
    assert latest[b"3"] == b"23"
    assert log.producers.producers[7].last_sequence == 3
    known = {entry.first_offset for entry in log.aborted_transactions(0, log.log_end_offset)}
    assert _aborted_offsets(log) <= known
    append(log, batch(key=b"new"))
    roll(log)
    clean(log)
    assert {record.key: record.value for record in read_all(log) if record.key and len(record.key) < 3} == latest


def _aborted_offsets(log: Log) -> set[int]:
    """First offsets of the transactions that a marker in the log aborts and that have a record left."""
    found: set[int] = set()
    first: dict[int, int] = {}
    for header in headers(log):
        if header.is_control and header.record_count:
            begun = first.pop(header.producer_id, None)
            marker = log.read(header.base_offset, 1).records
            assert marker is not None
            if begun is not None and decode_batch(marker.read())[0].key == control_key(ControlType.ABORT):
                found.add(begun)
        elif header.is_transactional and header.record_count:
            first.setdefault(header.producer_id, header.base_offset)
    return found


@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC, Fault.SHORT_WRITE])
def test_an_error_at_every_operation(fault: Fault) -> None:
    """The log goes on as one of the two, or is offline and one of the two when opened again."""
    for number in range(1, COUNT + 1):
        log = dirty_log(0)
        disk = log.disk
        disk.fail(disk.operations + number, fault)
        attempt(log)
        if log.offline is None:
            assert headers(log) in POSSIBLE, f"operation {number}"
        again = open_log(disk, SETTINGS, clean=False, recovery_point=log.flushed_offset)
        assert headers(again) in POSSIBLE, f"operation {number}"
