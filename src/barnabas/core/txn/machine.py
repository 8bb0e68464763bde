"""The transaction machine: decides about the transactional ids of one partition of ``__transaction_state``.

``transaction`` has the states of an id and their transitions; this module checks requests against them, keeps the
deadlines of open transactions and makes records. An id whose markers are being written answers CONCURRENT_TRANSACTIONS:
the runtime holds such requests back and asks again when the transaction is complete.

The deadlines are in memory: they run by the monotonic clock, so that no jump of the wall clock aborts a transaction or
keeps it open. A coordinator that takes over begins with what the wall clock leaves of the time-out.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.core.decision import NEVER_MS, Decision, Tick
from barnabas.core.txn import records as framing
from barnabas.core.txn.records import TxnRecord
from barnabas.core.txn.requests import (
    AddPartitions,
    Describe,
    EndTransaction,
    InitProducer,
    ListTransactions,
    MarkersWritten,
    Owner,
    ProducerIdNeeded,
    SendMarkers,
)
from barnabas.core.txn.transaction import EPOCH_BUMP_VERSION, LAST_EPOCH, Transaction, TxnState
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import NO_PRODUCER_ID
from barnabas.wire.schema import DecodeError

RETRY_MS = 1000
"""Until a time-out whose abort was not recorded is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnPolicy:
    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 7 * 24 * 3600 * 1000
    expiration_interval_ms: int = 3_600_000
    version: Callable[[], int] = lambda: EPOCH_BUMP_VERSION
    """The finalized level of transaction.version."""


class TxnMachine:
    def __init__(self, policy: TxnPolicy) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.policy = policy
        self._deadlines: dict[str, int] = {}
        """Of open transactions, by transactional id."""
        self._queue: list[tuple[int, str]] = []
        """The same as a heap; entries that ``_deadlines`` does not confirm are out of date."""
        self._expire_ids_at_ms = 0
        self._decisions: dict[type, Callable[[Any, int], tuple[Any, Transaction | None]]] = {
            InitProducer: self._init,
            AddPartitions: self._add,
            EndTransaction: self._end,
            MarkersWritten: self._complete,
            Describe: self._describe,
            ListTransactions: self._list,
        }

    # Decide

    def decide(self, token: object, request: object, now_ms: int) -> Decision:
        """Raises ApiError, ProducerIdNeeded."""
        if isinstance(request, Tick):
            return self._tick(now_ms, request.wall_ms)
        answer, changed = self._decisions[type(request)](request, now_ms)
        decision = Decision(replies=[(token, answer)])
        if changed is not None:
            self._record(decision, request.transactional_id, changed)  # type: ignore[attr-defined]
        return decision

    def _record(self, decision: Decision, transactional_id: str, transaction: Transaction) -> None:
        version = min(self.policy.version(), framing.FIRST_FLEXIBLE_VERSION)
        decision.records = [*decision.records, TxnRecord(transactional_id, transaction, version)]
        if transaction.state.is_preparing:
            decision.effects = [*decision.effects, SendMarkers(transactional_id, transaction)]

    def _init(self, request: InitProducer, now_ms: int) -> tuple[Any, Transaction | None]:
        if not 0 < request.timeout_ms <= self.policy.max_timeout_ms:
            raise ApiError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"transaction.timeout.ms={request.timeout_ms} is not within 1..{self.policy.max_timeout_ms}, "
                "the broker's transaction.max.timeout.ms",
            )
        current = self.transactions.get(request.transactional_id)
        if current is None:
            current = Transaction(producer_id=_given(request.new_producer_id))
        elif request.expected is not None and not current.accepts_owner(*request.expected):
            raise ApiError(ErrorCode.PRODUCER_FENCED)
        elif current.state is TxnState.ONGOING:
            # The epoch of the abort is given to nobody: the new owner asks again and gets the one after it.
            fenced = current.fence(self.policy.version(), request.wall_ms)
            return ApiError(ErrorCode.CONCURRENT_TRANSACTIONS), fenced
        elif not current.state.is_at_rest:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        initialized = self._initialized(current, request)
        return Owner(initialized.producer_id, initialized.producer_epoch), initialized

    @staticmethod
    def _initialized(current: Transaction, request: InitProducer) -> Transaction:
        expected_epoch = request.expected[1] if request.expected is not None else None
        if not current.is_exhausted:
            return current.initialize(expected_epoch, request.timeout_ms, request.wall_ms)
        if expected_epoch not in (None, current.producer_epoch):
            raise ApiError(ErrorCode.PRODUCER_FENCED)
        return current.rotate(
            _given(request.new_producer_id),
            keep_last=expected_epoch is not None,
            timeout_ms=request.timeout_ms,
            wall_ms=request.wall_ms,
        )

    def _owned(self, request: AddPartitions) -> Transaction:
        current = self.transactions.get(request.transactional_id)
        if current is None or current.producer_id != request.producer_id:
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if current.producer_epoch != request.producer_epoch or request.producer_epoch > LAST_EPOCH:
            raise ApiError(ErrorCode.PRODUCER_FENCED)
        if not current.state.is_at_rest and current.state is not TxnState.ONGOING:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return current

    def _add(self, request: AddPartitions, now_ms: int) -> tuple[Any, Transaction | None]:
        current = self._owned(request)
        known = frozenset(current.partitions)
        if request.verify_only:
            unknown = ErrorCode.TRANSACTION_ABORTABLE
            return {each: ErrorCode.NONE if each in known else unknown for each in request.partitions}, None
        answer = dict.fromkeys(request.partitions, ErrorCode.NONE)
        if current.state is TxnState.ONGOING and known.issuperset(request.partitions):
            return answer, None
        if current.state is not TxnState.ONGOING:
            self._set_deadline(request.transactional_id, now_ms + current.timeout_ms)
        return answer, current.add(request.partitions, request.client_version, request.wall_ms)

    def _end(self, request: EndTransaction, now_ms: int) -> tuple[Any, Transaction | None]:
        current = self.transactions.get(request.transactional_id)
        if current is None:
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        bumps = request.client_version >= EPOCH_BUMP_VERSION
        if bumps and current.is_repeated_end(request.producer_id, request.producer_epoch):
            return self._end_again(current, request), None
        if current.producer_id != request.producer_id:
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if current.producer_epoch != request.producer_epoch or request.producer_epoch > LAST_EPOCH:
            raise ApiError(ErrorCode.PRODUCER_FENCED)
        if current.state is TxnState.ONGOING:
            return self._prepared(current, request)
        if bumps and current.state.is_preparing:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)  # with the bumped epoch: the transaction after this one
        if bumps and current.state.is_at_rest and not request.committed:
            # The client may have failed before the first partition was added: it gets an epoch of its own.
            return self._prepared(current, request)
        if bumps or current.state is TxnState.EMPTY:
            raise _no_transaction(current, request)
        return self._end_again(current, request), None

    def _end_again(self, current: Transaction, request: EndTransaction) -> Owner:
        if current.is_commit != request.committed:
            raise _no_transaction(current, request)
        if current.state.is_preparing:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if current.producer_epoch > LAST_EPOCH:
            raise ApiError(ErrorCode.PRODUCER_FENCED)
        return Owner(current.producer_id, current.producer_epoch)

    @staticmethod
    def _prepared(current: Transaction, request: EndTransaction) -> tuple[Owner, Transaction]:
        rotates = request.client_version >= EPOCH_BUMP_VERSION and current.is_exhausted
        prepared = current.prepare(
            committed=request.committed,
            client_version=request.client_version,
            wall_ms=request.wall_ms,
            next_producer_id=_given(request.new_producer_id) if rotates else NO_PRODUCER_ID,
        )
        if rotates:
            return Owner(prepared.next_producer_id, 0), prepared
        return Owner(prepared.producer_id, prepared.producer_epoch), prepared

    def _complete(self, request: MarkersWritten, now_ms: int) -> tuple[Any, Transaction | None]:
        current = self.transactions.get(request.transactional_id)
        owner = request.producer_id, request.producer_epoch
        if current is None or not current.state.is_preparing or (current.producer_id, current.producer_epoch) != owner:
            return None, None  # of an earlier transaction
        return None, current.complete(request.wall_ms)

    # Looking

    def _describe(self, request: Describe, now_ms: int) -> tuple[Any, Transaction | None]:
        current = self.transactions.get(request.transactional_id)
        if current is None:
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return current, None

    def _list(self, request: ListTransactions, now_ms: int) -> tuple[Any, Transaction | None]:
        def passes(transaction: Transaction) -> bool:
            is_open, age_ms = not transaction.state.is_at_rest, request.wall_ms - transaction.start_timestamp_ms
            return (
                (not request.states or transaction.state.title in request.states)
                and (not request.producer_ids or transaction.producer_id in request.producer_ids)
                and (request.longer_than_ms < 0 or (is_open and age_ms > request.longer_than_ms))
            )

        return [item for item in sorted(self.transactions.items()) if passes(item[1])], None

    # Time

    @property
    def next_deadline_ms(self) -> int:
        """When ``Tick`` is due."""
        while self._queue and self._deadlines.get(self._queue[0][1]) != self._queue[0][0]:
            heapq.heappop(self._queue)
        return self._queue[0][0] if self._queue else NEVER_MS

    @property
    def is_live(self) -> bool:
        return bool(self._deadlines)

    def _set_deadline(self, transactional_id: str, deadline_ms: int) -> None:
        self._deadlines[transactional_id] = deadline_ms
        heapq.heappush(self._queue, (deadline_ms, transactional_id))

    def _tick(self, now_ms: int, wall_ms: int) -> Decision:
        """Aborts what has timed out, and now and then forgets ids that nobody uses."""
        decision = Decision()
        while self.next_deadline_ms <= now_ms:
            transactional_id = heapq.heappop(self._queue)[1]
            transaction = self.transactions.get(transactional_id)
            if transaction is None or transaction.state is not TxnState.ONGOING:
                del self._deadlines[transactional_id]  # its beginning was not recorded
                continue
            self._set_deadline(transactional_id, now_ms + RETRY_MS)
            self._record(decision, transactional_id, transaction.fence(self.policy.version(), wall_ms))
        if now_ms >= self._expire_ids_at_ms:
            is_first = not self._expire_ids_at_ms
            self._expire_ids_at_ms = now_ms + self.policy.expiration_interval_ms
            if not is_first:
                decision.records = [*decision.records, *self._expired(wall_ms)]
        return decision

    def _expired(self, wall_ms: int) -> list[TxnRecord]:
        before_ms = wall_ms - self.policy.id_expiration_ms
        return [
            TxnRecord(transactional_id, None)
            for transactional_id, transaction in sorted(self.transactions.items())
            if transaction.state.is_at_rest and transaction.update_timestamp_ms <= before_ms
        ]

    # Replay

    def replay(self, records: Sequence[TxnRecord], *, next_offset: int, raft_epoch: int, timestamp_ms: int) -> None:
        for record in records:
            self._replay(record)

    def _replay(self, record: TxnRecord) -> None:
        transaction = record.transaction
        if transaction is None:
            self.transactions.pop(record.transactional_id, None)
        else:
            self.transactions[record.transactional_id] = transaction
        if transaction is None or transaction.state is not TxnState.ONGOING:
            self._deadlines.pop(record.transactional_id, None)

    def replay_stored(
        self, offset: int, producer_id: int, producer_epoch: int, key: bytes | None, value: bytes | None
    ) -> None:
        """A record of the log. One that this build cannot read is skipped, and stays in the log."""
        try:
            record = framing.decode(key, value)
        except DecodeError:
            return
        if record is not None:
            self._replay(record)

    def replay_end_marker(self, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        """There are none in this log."""

    def loaded(self, now_ms: int, wall_ms: int) -> Sequence[SendMarkers]:
        """The log has been replayed: what is prepared goes on; open transactions have what is left of their time."""
        for transactional_id, transaction in sorted(self.transactions.items()):
            if transaction.state is TxnState.ONGOING:
                left_ms = transaction.start_timestamp_ms + transaction.timeout_ms - wall_ms
                self._set_deadline(transactional_id, now_ms + max(0, min(left_ms, transaction.timeout_ms)))
        return [SendMarkers(*item) for item in sorted(self.transactions.items()) if item[1].state.is_preparing]

    def dismiss_all(self, code: ErrorCode) -> list[tuple[object, Any]]:
        """No request waits in this machine."""
        return []


def _given(producer_id: int) -> int:
    if producer_id == NO_PRODUCER_ID:
        raise ProducerIdNeeded
    return producer_id


def _no_transaction(current: Transaction, request: EndTransaction) -> ApiError:
    verb = "commit" if request.committed else "abort"
    return ApiError(
        ErrorCode.INVALID_TXN_STATE, f"there is nothing to {verb}: the transaction is {current.state.title}"
    )
