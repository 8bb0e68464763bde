"""The transaction coordinator: the shards of ``__transaction_state``.

A transaction whose outcome is committed has its markers written (``runtime.transaction_markers``); then it is complete.
A request that comes in between is held for a while instead of being refused with CONCURRENT_TRANSACTIONS at once, after
which clients pause: mostly it can be answered a moment later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from barnabas.core.txn import records as framing
from barnabas.core.txn.machine import TxnMachine, TxnPolicy
from barnabas.core.txn.marker import EndMarker
from barnabas.core.txn.requests import (
    AddPartitions,
    EndTransaction,
    InitProducer,
    MarkersWritten,
    ProducerIdNeeded,
    SendMarkers,
)
from barnabas.core.txn.transaction import Transaction
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import TRANSACTIONS_TOPIC
from barnabas.model.ports import Clock
from barnabas.runtime.coordinator import RETRY_MS, Coordinator, CoordinatorShard, Report
from barnabas.runtime.partition import Partition
from barnabas.runtime.partitions import LocalPartitions
from barnabas.runtime.shard import Then
from barnabas.runtime.transaction_markers import MarkerJob, MarkerSender

HOLD_MS = 1000
"""How long a request waits for the transaction before it to be complete."""

Allocate = Callable[[Callable[[int | ApiError], None]], None]
"""Gives a fresh producer id, now or later."""
_Owned = InitProducer | EndTransaction | AddPartitions


class TransactionShard(CoordinatorShard):
    machine: TxnMachine
    encode = staticmethod(framing.encode)

    def __init__(
        self,
        partition: Partition,
        policy: TxnPolicy,
        markers: MarkerSender,
        allocate: Allocate,
        clock: Clock,
        report: Report,
    ) -> None:
        self._policy = policy
        self._markers = markers
        self._allocate = allocate
        self._jobs: dict[str, MarkerJob] = {}
        self._held: dict[str, list[Callable[[], None]]] = {}
        """By transactional id: requests to be decided again when its transaction is complete."""
        super().__init__(partition, clock, report)

    def _new_machine(self) -> TxnMachine:
        return TxnMachine(self._policy)

    # Markers

    def _perform(self, effects: Sequence[SendMarkers]) -> None:
        for effect in effects:
            self._send_markers(effect.transactional_id, effect.transaction)

    def _send_markers(self, transactional_id: str, transaction: Transaction) -> None:
        former = self._jobs.pop(transactional_id, None)
        if former is not None:
            former.cancel()
        marker = EndMarker(
            transaction.producer_id,
            transaction.producer_epoch,
            self.leader_epoch,
            transaction.is_commit,
            transaction.client_version,
        )
        is_written = False

        def written() -> None:
            nonlocal is_written
            is_written = True
            self._jobs.pop(transactional_id, None)
            self._complete(transactional_id, transaction)

        job = self._markers.send(marker, transaction.partitions, written)
        if not is_written:
            self._jobs[transactional_id] = job

    def _complete(self, transactional_id: str, transaction: Transaction) -> None:
        if self._closed:
            return
        written = MarkersWritten(
            transactional_id, transaction.producer_id, transaction.producer_epoch, self._clock.now_ms()
        )

        def recorded(outcome: Any) -> None:
            if isinstance(outcome, ApiError) and not self._closed:
                retry_at_ms = self._clock.monotonic_ms() + RETRY_MS
                self._clock.call_at(retry_at_ms, lambda: self._complete(transactional_id, transaction))
            else:
                self._release(transactional_id)

        super().submit(written, recorded)

    # Requests

    def submit(self, request: object, then: Then) -> None:
        if isinstance(request, (InitProducer, EndTransaction, AddPartitions)):
            may_wait = not (isinstance(request, AddPartitions) and request.from_broker)
            self._submit(request, then, self._clock.monotonic_ms() + (HOLD_MS if may_wait else 0))
        else:
            super().submit(request, then)

    def _submit(self, request: _Owned, then: Then, deadline_ms: int) -> None:
        def answered(response: Any) -> None:
            is_concurrent = isinstance(response, ApiError) and response.code is ErrorCode.CONCURRENT_TRANSACTIONS
            if is_concurrent and self._clock.monotonic_ms() < deadline_ms and not self._closed:
                self._hold(request, then, deadline_ms)
            else:
                then(response)

        try:
            super().submit(request, answered)
        except ProducerIdNeeded:
            self._allocate(lambda allocated: self._submit_with(allocated, request, then, deadline_ms))

    def _submit_with(self, allocated: int | ApiError, request: _Owned, then: Then, deadline_ms: int) -> None:
        if isinstance(allocated, ApiError):
            then(ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(allocated)))
        else:
            self._submit(replace(request, new_producer_id=allocated), then, deadline_ms)

    def _hold(self, request: _Owned, then: Then, deadline_ms: int) -> None:
        """Decides it again when the transaction is complete, or time is up."""
        transaction = self.machine.transactions.get(request.transactional_id)
        if transaction is None or not transaction.state.is_preparing:
            self._submit(request, then, deadline_ms)
            return
        held = self._held.setdefault(request.transactional_id, [])
        held.append(lambda: self._submit(request, then, deadline_ms))
        self._clock.call_at(deadline_ms, lambda: self._release(request.transactional_id))

    def _release(self, transactional_id: str) -> None:
        for again in self._held.pop(transactional_id, ()):
            again()

    # Ending

    def _load(self) -> None:
        self._cancel_jobs()  # what is prepared will be found in the log
        super()._load()

    def close(self) -> None:
        self._cancel_jobs()
        super().close()
        for transactional_id in list(self._held):
            self._release(transactional_id)

    def _cancel_jobs(self) -> None:
        jobs, self._jobs = self._jobs, {}
        for job in jobs.values():
            job.cancel()


class TransactionCoordinator(Coordinator[TransactionShard]):
    topic = TRANSACTIONS_TOPIC

    def __init__(
        self,
        *,
        partitions: LocalPartitions,
        policy: TxnPolicy,
        markers: MarkerSender,
        allocate: Allocate,
        clock: Clock,
        report: Report,
    ) -> None:
        super().__init__(
            partitions=partitions,
            make_shard=lambda partition: TransactionShard(partition, policy, markers, allocate, clock, report),
        )
        self._markers = markers

    def close(self) -> None:
        super().close()
        self._markers.close()
