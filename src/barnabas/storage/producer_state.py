"""The state of a partition's producers: sequences, epochs, recent batches and open transactions.

A batch is checked before it is written (``check``) and remembered afterwards (``remember``), so that a failed write
leaves no trace. The rules are Kafka's (KIP-98, KIP-360, KIP-890):

- An epoch never goes back. A new epoch begins with sequence 0, unless nothing is known of the producer.
- Within an epoch sequences follow each other and wrap from 2^31 - 1 to 0.
- The last five batches are kept, so that each of the five in flight may be sent again and gets its first response.
- An idle producer expires. Kafka measures idleness by record timestamps, so a producer of old records expires at once;
  here it counts from when the broker appended the last batch, in snapshots too.
- A transaction begins with its first transactional batch and ends with a marker. What begins at or after the first
  open transaction, or before a marker that the high watermark has not passed, is unstable.
- The first batch of a transaction needs a guard: an object made before the transaction's coordinator was asked whether
  it knows the partition (KIP-890). A marker that arrives in between discards the guard, so that no late batch begins a
  transaction that nobody will end.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from barnabas.model.errors import ApiError, ErrorCode
from barnabas.storage.transaction_index import AbortedTransaction

RETAINED_BATCHES = 5
MAX_SEQUENCE = 2**31 - 1


class Origin(IntEnum):
    """The source of an append, which decides what is checked."""

    CLIENT = 0
    """A producer: everything is checked."""
    COORDINATOR = 1
    """Our own group or transaction coordinator: trusted bytes, producer epochs are checked."""
    REPLICATION = 2
    """A leader has checked already."""
    RAFT_LEADER = 3
    """The metadata log's leader."""


class RememberedBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry:
    __slots__ = (
        "batches",
        "coordinator_epoch",
        "last_heard_ms",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(self, producer_id: int, producer_epoch: int = -1) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = -1
        self.last_heard_ms = -1  # when the broker last took in a batch or marker of it
        self.last_timestamp = -1  # of its records
        self.transaction_first_offset = -1  # -1 while no transaction is open
        self.batches: list[RememberedBatch] = []  # at most RETAINED_BATCHES, all of producer_epoch

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1

    def has_open_transaction(self, producer_epoch: int) -> bool:
        return self.transaction_first_offset >= 0 and self.producer_epoch == producer_epoch

    def is_idle(self, now_ms: int, expiration_ms: int) -> bool:
        return self.transaction_first_offset < 0 and now_ms - self.last_heard_ms >= expiration_ms

    def duplicate_of(self, producer_epoch: int, first_sequence: int, last_sequence: int) -> RememberedBatch | None:
        if producer_epoch == self.producer_epoch:
            for batch in self.batches:
                if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                    return batch
        return None


class ProducerState:
    """``end_offset`` is the offset up to which the log has been processed."""

    __slots__ = ("_completed", "_guards", "_last_expiry", "_ongoing", "end_offset", "producers")

    def __init__(self) -> None:
        self.producers: dict[int, ProducerEntry] = {}
        self._ongoing: dict[int, int] = {}  # first offset -> producer id, ascending
        self._completed: list[tuple[int, int]] = []  # (first, last offset), marker not yet below the high watermark
        self._guards: dict[int, object] = {}  # producer id -> of the transaction that is being verified
        self._last_expiry: tuple[int, int] | None = None  # (wall, monotonic time) of the last look for idle producers
        self.end_offset = 0

    # Data batches

    def check(
        self,
        producer_id: int,
        producer_epoch: int,
        first_sequence: int,
        last_sequence: int,
        transactional: bool,
        origin: Origin,
        guard: object = None,
    ) -> RememberedBatch | None:
        """The remembered batch that this one repeats, or None where it is new. Raises ApiError."""
        entry = self.producers.get(producer_id)
        if entry is None:
            if transactional:
                self._check_guard(producer_id, guard)
            if producer_epoch < -1:
                raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, f"producer {producer_id} has epoch {producer_epoch}")
            return None  # nothing is known, perhaps no longer: any sequence begins
        if origin is Origin.CLIENT:
            duplicate = entry.duplicate_of(producer_epoch, first_sequence, last_sequence)
            if duplicate is not None:
                return duplicate
        current = entry.producer_epoch
        if producer_epoch < current:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} has epoch {producer_epoch}, the last seen is {current}",
            )
        if origin is Origin.CLIENT:
            self._check_sequence(entry, producer_epoch, first_sequence)
        if entry.transaction_first_offset >= 0 and not transactional:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE, f"producer {producer_id} has an open transaction, the batch is outside it"
            )
        if transactional and not entry.has_open_transaction(producer_epoch):
            self._check_guard(producer_id, guard)
        return None

    def _check_guard(self, producer_id: int, guard: object) -> None:
        if not self.holds(producer_id, guard):
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE, f"the transaction of producer {producer_id} has not been verified"
            )

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        entry = self.producers.get(producer_id)
        return entry is not None and entry.has_open_transaction(producer_epoch)

    def begin_verification(self, producer_id: int, producer_epoch: int) -> object | None:
        """The guard for the first batch of a transaction; None where the transaction is open already."""
        if self.has_open_transaction(producer_id, producer_epoch):
            return None
        guard = self._guards[producer_id] = object()
        return guard

    def holds(self, producer_id: int, guard: object) -> bool:
        """Whether no marker has come since the guard was made."""
        return guard is not None and self._guards.get(producer_id) is guard

    def end_verification(self, producer_id: int, guard: object) -> None:
        """The coordinator does not confirm the transaction."""
        if self.holds(producer_id, guard):
            del self._guards[producer_id]

    @staticmethod
    def _check_sequence(entry: ProducerEntry, producer_epoch: int, first_sequence: int) -> None:
        if producer_epoch != entry.producer_epoch:
            if first_sequence != 0 and entry.producer_epoch != -1:
                raise ApiError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {entry.producer_id} begins epoch {producer_epoch} with sequence {first_sequence}, not 0",
                )
            return
        last = entry.last_sequence
        if first_sequence != last + 1 and not (first_sequence == 0 and last == MAX_SEQUENCE):
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {entry.producer_id} sent sequence {first_sequence} after {last}",
            )

    def remember(
        self,
        producer_id: int,
        producer_epoch: int,
        first_sequence: int,
        last_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp: int,
        transactional: bool,
        now_ms: int,
    ) -> None:
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(producer_id, producer_epoch)
        batches = entry.batches
        if entry.producer_epoch != producer_epoch:
            entry.producer_epoch = producer_epoch
            batches.clear()
        elif len(batches) >= RETAINED_BATCHES:
            del batches[0]
        batches.append(RememberedBatch(first_sequence, last_sequence, first_offset, last_offset, timestamp))
        entry.last_timestamp = timestamp
        entry.last_heard_ms = now_ms
        if transactional and entry.transaction_first_offset < 0:
            entry.transaction_first_offset = first_offset
            self._ongoing[first_offset] = producer_id
            self._guards.pop(producer_id, None)

    # Transaction markers

    def check_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, transaction_version: int
    ) -> None:
        entry = self.producers.get(producer_id)
        if entry is None:
            return
        current = entry.producer_epoch
        # From version 2 on the coordinator bumps the epoch with every transaction, so an equal epoch is a repetition:
        # harmless once the transaction has ended, and refused while another one is open.
        repeats = transaction_version >= 2 and producer_epoch == current and entry.transaction_first_offset >= 0
        if producer_epoch < current or repeats:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"the marker for producer {producer_id} has epoch {producer_epoch}, the last seen is {current}",
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise ApiError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"the marker for producer {producer_id} comes from coordinator epoch {coordinator_epoch}, "
                f"the last seen is {entry.coordinator_epoch}",
            )

    def complete(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        offset: int,
        timestamp: int,
        aborted: bool,
        now_ms: int,
    ) -> AbortedTransaction | None:
        """Ends the producer's transaction; the entry for the transaction index where it was aborted."""
        self._guards.pop(producer_id, None)
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(producer_id, producer_epoch)
        if entry.producer_epoch != producer_epoch:
            entry.producer_epoch = producer_epoch
            entry.batches.clear()
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = timestamp
        entry.last_heard_ms = now_ms
        first_offset = entry.transaction_first_offset
        if first_offset < 0:
            return None
        entry.transaction_first_offset = -1
        del self._ongoing[first_offset]
        self._completed.append((first_offset, offset))
        if not aborted:
            return None
        return AbortedTransaction(producer_id, first_offset, offset, self._first_undecided(offset + 1))

    def _first_undecided(self, otherwise: int) -> int:
        return min(self._ongoing, default=otherwise)

    # Stability

    @property
    def first_unstable_offset(self) -> int | None:
        """Of open transactions only; ``last_stable_offset`` adds those whose marker may still be lost."""
        return min(self._ongoing) if self._ongoing else None

    def last_stable_offset(self, high_watermark: int) -> int:
        if self._completed:
            self._completed = [entry for entry in self._completed if entry[1] >= high_watermark]
        elif not self._ongoing:
            return high_watermark
        stable = self._first_undecided(high_watermark)
        for first_offset, _ in self._completed:
            stable = min(stable, first_offset)
        return min(stable, high_watermark)

    # Keeping house

    def expire(self, now_ms: int, monotonic_ms: int, expiration_ms: int) -> int:
        """Removes idle producers without an open transaction; returns how many.

        A wall clock that was set forward makes no producer idle: its lead over the monotonic clock since the last call
        is added to the time of each producer's last batch. The first call only records the time.
        """
        if self._last_expiry is None:
            self._last_expiry = now_ms, monotonic_ms
            return 0
        jump_ms = max(0, now_ms - self._last_expiry[0] - (monotonic_ms - self._last_expiry[1]))
        self._last_expiry = now_ms, monotonic_ms
        for entry in self.producers.values():
            entry.last_heard_ms = min(entry.last_heard_ms + jump_ms, now_ms)
        idle = [entry.producer_id for entry in self.producers.values() if entry.is_idle(now_ms, expiration_ms)]
        for producer_id in idle:
            del self.producers[producer_id]
        return len(idle)

    def clear(self, end_offset: int) -> None:
        self.producers.clear()
        self._guards.clear()
        self._ongoing.clear()
        self._completed.clear()
        self.end_offset = end_offset

    def load(self, entry: ProducerEntry) -> None:
        self.producers[entry.producer_id] = entry
        if entry.transaction_first_offset >= 0:
            self._ongoing[entry.transaction_first_offset] = entry.producer_id


def first_sequence_of(last_sequence: int, offset_delta: int) -> int:
    return (last_sequence - offset_delta) & MAX_SEQUENCE if last_sequence >= 0 else -1
