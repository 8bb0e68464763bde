"""Planted bugs, patched in: a simulator that does not find them proves nothing when it finds nothing.

Those of a single node are here, those that need several in ``cluster_mutants``, those of transactions in
``transaction_mutants``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from barnabas.core.raft.events import LogSynced
from barnabas.model.errors import ErrorCode
from barnabas.runtime import flush
from barnabas.runtime.coordinator_log import PartitionJournal
from barnabas.runtime.partition import Partition
from barnabas.runtime.raft_driver import RaftDriver
from barnabas.sim.cluster_mutants import CLUSTER_MUTANTS
from barnabas.sim.transaction_mutants import TRANSACTION_MUTANTS
from barnabas.storage import checkpoints, loader, scan
from barnabas.storage.log import Log
from barnabas.storage.producer_snapshot import Snapshots
from barnabas.storage.producer_state import ProducerEntry

Patch = tuple[Any, str, Any]


def _advance_at_once(partition: Any, _now_ms: int) -> None:
    partition._advance(partition.log.log_end_offset)


def _acknowledge_one_early(partition: Any, last_offset: int, then: Callable[[ErrorCode], None]) -> None:
    if last_offset <= partition.high_watermark:
        then(ErrorCode.NONE)
    else:
        partition._waiting_for_commit.append((last_offset, then))


def _commit_without_sync(driver: Any) -> None:
    driver._step(LogSynced(driver.log.log_end_offset))


def _scan_without_checksums(*arguments: Any, **options: Any) -> Any:
    return _scan_segment(*arguments, **{**options, "check_crc": False})


def _idle_by_timestamp(entry: Any, now_ms: int, expiration_ms: int) -> bool:
    return bool(entry.transaction_first_offset < 0 and now_ms - entry.last_timestamp >= expiration_ms)


def _finish_without_names(flushing: Any) -> None:
    flushing._folders.clear()
    flushing._finish(None)


_scan_segment = scan.scan_segment

MUTANTS: dict[str, list[Patch]] = {
    "acknowledged before the sync": [(Partition, "_gate", _advance_at_once)],
    "high watermark off by one": [(Partition, "when_acknowledged", _acknowledge_one_early)],
    "metadata committed without a sync": [(RaftDriver, "_sync", _commit_without_sync)],
    "group replies do not wait for the high watermark": [
        (PartitionJournal, "high_watermark", property(lambda journal: journal.log_end_offset))
    ],
    "duplicates not recognised": [(ProducerEntry, "duplicate_of", lambda *_: None)],
    "producers forgotten at a restart": [
        (loader, "_replay_all", lambda *_: []),
        (Snapshots, "load_latest", lambda _, state, *, start_offset, **__: state.clear(start_offset)),
    ],
    "producers expire by their records' timestamps": [(ProducerEntry, "is_idle", _idle_by_timestamp)],
    "every stop taken for a clean one": [(checkpoints, "read_clean_shutdown", lambda *_: 0)],
    "recovery checks no checksums": [(loader, "scan_segment", _scan_without_checksums)],
    "names of new files not synced": [(flush._Flush, "_sync_folder", _finish_without_names)],
    "append returns before the write": [(Log, "write", lambda *_: None)],
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The bug of that name is in the code while this lasts."""
    patches = (MUTANTS | CLUSTER_MUTANTS | TRANSACTION_MUTANTS)[name]
    before = [(owner, attribute, owner.__dict__[attribute]) for owner, attribute, _ in patches]
    for owner, attribute, mutant in patches:
        setattr(owner, attribute, mutant)
    try:
        yield
    finally:
        for owner, attribute, original in before:
            setattr(owner, attribute, original)
