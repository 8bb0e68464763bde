"""Planted bugs of transactions: coordinator, markers, verification, indexes, offsets.

Each is a small change of one function, as a wrong or forgotten line would make it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from barnabas.core.decision import Decision
from barnabas.core.group.offsets import Offsets
from barnabas.core.txn.machine import TxnMachine
from barnabas.core.txn.transaction import Transaction
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import NO_PRODUCER_ID, TRANSACTIONS_TOPIC
from barnabas.runtime.coordinator_log import PartitionJournal
from barnabas.runtime.partition import Partition
from barnabas.runtime.transaction_markers import MarkerJob, MarkerSender
from barnabas.runtime.transaction_verification import TransactionVerifier
from barnabas.storage import follower, loader
from barnabas.storage.transaction_index import TransactionIndex
from barnabas.wire.batch import TRANSACTIONAL

Patch = tuple[Any, str, Any]

# The coordinator


def _lose_last_marker(sender: Any, marker: Any, partitions: Iterable[Any], then: Callable[[], None]) -> Any:
    several = tuple(partitions)
    return _send(sender, marker, several[:-1] if len(several) > 1 else several, then)


def _complete_at_first(job: Any, partition: Any) -> None:
    if job.remaining.pop(partition, True) is None and not job.is_cancelled:
        job.is_cancelled = True
        job._then()


def _keep_epoch_at_init(current: Any, *arguments: Any) -> Any:
    return replace(_initialize(current, *arguments), producer_epoch=max(0, current.producer_epoch))


def _keep_epoch_at_end(current: Any, **options: Any) -> Any:
    return replace(_prepare(current, **options), producer_epoch=current.producer_epoch)


def _keep_epoch_at_fence(current: Any, *arguments: Any) -> Any:
    return replace(_fence(current, *arguments), producer_epoch=current.producer_epoch)


def _end_before_committed(journal: Any) -> int:
    partition = journal._partition
    is_coordinator = partition.name.topic == TRANSACTIONS_TOPIC
    return int(partition.log.log_end_offset if is_coordinator else partition.high_watermark)


def _forget_prepared(machine: Any, now_ms: int, wall_ms: int) -> Any:
    _loaded(machine, now_ms, wall_ms)
    return []


def _never_time_out(machine: Any, now_ms: int, _wall_ms: int) -> Decision:
    machine._queue.clear()
    machine._deadlines.clear()
    return Decision()


# Partitions


def _believe_the_batch(verifier: Any, question: Any, code: ErrorCode) -> None:
    is_refused = code in (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.PRODUCER_FENCED)
    _judge(verifier, question, ErrorCode.NONE if is_refused and not question.claim.adds else code)


def _replay_outside(producers: Any, buffer: Any, position: int, header: Any, now_ms: int) -> Any:
    if not header.is_control:
        header = header._replace(attributes=header.attributes & ~TRANSACTIONAL)
    return _replay(producers, buffer, position, header, now_ms)


def _replay_at_once(offsets: Any, offset: int, _producer_id: int, key: Any, value: Any) -> None:
    _replay_offset(offsets, offset, NO_PRODUCER_ID, key, value)


def _replay_without_aborted(*arguments: Any) -> list[Any]:
    _replay_all(*arguments)
    return []


_send = MarkerSender.send
_initialize = Transaction.initialize
_prepare = Transaction.prepare
_fence = Transaction.fence
_loaded = TxnMachine.loaded
_judge = TransactionVerifier._judge
_replay = follower.replay
_replay_all = loader._replay_all
_replay_offset = Offsets.replay

TRANSACTION_MUTANTS: dict[str, list[Patch]] = {
    "one marker of a transaction lost": [(MarkerSender, "send", _lose_last_marker)],
    "transaction complete with its first marker": [(MarkerJob, "written", _complete_at_first)],
    "producer epoch not bumped by InitProducerId": [(Transaction, "initialize", _keep_epoch_at_init)],
    "producer epoch not bumped by EndTxn": [(Transaction, "prepare", _keep_epoch_at_end)],
    "producer epoch not bumped by a time-out": [(Transaction, "fence", _keep_epoch_at_fence)],
    "outcome of a transaction not awaited": [(PartitionJournal, "high_watermark", property(_end_before_committed))],
    "prepared transactions forgotten at a failover": [(TxnMachine, "loaded", _forget_prepared)],
    "transactions never time out": [(TxnMachine, "_tick", _never_time_out)],
    "transactional batches not verified": [(TransactionVerifier, "_judge", _believe_the_batch)],
    "open transactions unknown to followers": [(follower, "replay", _replay_outside)],
    "pending offsets applied early": [(Offsets, "replay", _replay_at_once)],
    "aborted transactions not indexed": [(TransactionIndex, "append", lambda *_: None)],
    "aborted transactions not found again": [(loader, "_replay_all", _replay_without_aborted)],
    "aborted transactions not synced": [(TransactionIndex, "unsynced_file", lambda _: None)],
    "open transactions visible": [(Partition, "visible_end", lambda partition, **_: partition.high_watermark)],
}
"""Found by clusters of three with transactional clients, or by a schedule."""
