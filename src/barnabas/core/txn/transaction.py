"""The state of a transactional id, and all of its transitions.

                 add partitions            end (commit)                 all markers written
    EMPTY ------------------------> ONGOING ------> PREPARE_COMMIT ------------> COMPLETE_COMMIT
      ^                              |  ^                                            |
      |                              |  +--- add partitions -------------------------+
      |                 end (abort), |  +--- add partitions -----------------+
      |          time-out, new owner v                                       |
      |                           PREPARE_ABORT --- all markers written --> COMPLETE_ABORT
      +---- init (bumps the epoch) ----------- from EMPTY and both COMPLETE states

The decision to commit or abort is made when the PREPARE record is committed; from then on it is only carried out:
markers go to every partition of the transaction, and are sent again until each is written. A coordinator that takes
over finds PREPARE in the log and goes on.

Epochs fence. A new owner of the transactional id gets a higher epoch than any before, and so does, with transaction
version 2 (KIP-890), every transaction: its markers carry the bumped epoch, so nothing of the former epoch can enter a
partition after them. An epoch has 15 bits; the last one is kept for fencing, so a producer id whose epoch is
``LAST_EPOCH`` is exchanged for a new one (KIP-360).
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from barnabas.model.errors import ApiError, ErrorCode, invariant
from barnabas.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

LAST_EPOCH = 2**15 - 2
"""Of a producer; the one after it is only ever used to fence."""
EPOCH_BUMP_VERSION = 2
"""From this transaction version on, every end of a transaction bumps the epoch."""
NO_TIME = -1


class TxnState(Enum):
    """The number in the log, and Kafka's name."""

    EMPTY = 0, "Empty"
    ONGOING = 1, "Ongoing"
    PREPARE_COMMIT = 2, "PrepareCommit"
    PREPARE_ABORT = 3, "PrepareAbort"
    COMPLETE_COMMIT = 4, "CompleteCommit"
    COMPLETE_ABORT = 5, "CompleteAbort"
    DEAD = 6, "Dead"
    PREPARE_EPOCH_FENCE = 7, "PrepareEpochFence"

    def __init__(self, number: int, title: str) -> None:
        self.number = number
        self.title = title

    @property
    def is_preparing(self) -> bool:
        """The outcome is decided and markers are being written."""
        return self in (TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)

    @property
    def is_at_rest(self) -> bool:
        """No transaction is open: the id may be initialized anew, or expire."""
        return self in (TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT)


class Transaction(Struct, frozen=True, kw_only=True):
    """A transactional id, its producer, and the transaction that is open or was the last."""

    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    """-1 until the first InitProducerId is recorded."""
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The epoch before, while its owner may repeat the request that bumped it. In memory only, as in Kafka."""
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    """Takes over when the markers are written: the epochs of ``producer_id`` are used up."""
    timeout_ms: int = 0
    state: TxnState = TxnState.EMPTY
    partitions: tuple[TopicPartition, ...] = ()
    """Sorted. Those that need a marker, while one is due."""
    start_timestamp_ms: int = NO_TIME
    update_timestamp_ms: int = 0
    client_version: int = 0
    """The transaction version of the client that acted last."""

    # Initialize

    @property
    def is_exhausted(self) -> bool:
        return self.producer_epoch >= LAST_EPOCH

    def accepts_owner(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether InitProducerId may come from this producer, which continues after an error (KIP-360)."""
        return (
            producer_id == self.producer_id
            or self.producer_epoch == NO_PRODUCER_EPOCH
            or (producer_id == self.previous_producer_id and producer_epoch >= LAST_EPOCH)
        )

    def initialize(self, expected_epoch: int | None, timeout_ms: int, wall_ms: int) -> Transaction:
        """For an owner that knows no epoch, or names the one that it has. Raises ApiError."""
        invariant(self.state.is_at_rest, f"a producer is initialized while its transaction is {self.state.title}")
        invariant(not self.is_exhausted, f"producer {self.producer_id} has no epoch left")
        if expected_epoch is None:
            epoch, last = self.producer_epoch + 1, NO_PRODUCER_EPOCH
        elif self.producer_epoch in (expected_epoch, NO_PRODUCER_EPOCH):
            epoch, last = self.producer_epoch + 1, self.producer_epoch
        elif expected_epoch == self.last_producer_epoch:
            epoch, last = self.producer_epoch, self.last_producer_epoch  # a repetition: it has its epoch
        else:
            raise ApiError(ErrorCode.PRODUCER_FENCED)
        return self._at_rest(self.producer_id, epoch, last, timeout_ms, wall_ms)

    def rotate(self, producer_id: int, *, keep_last: bool, timeout_ms: int, wall_ms: int) -> Transaction:
        """Goes on with another producer id: the epochs of this one are used up."""
        invariant(self.state.is_at_rest, f"a producer is replaced while its transaction is {self.state.title}")
        last = self.producer_epoch if keep_last else NO_PRODUCER_EPOCH
        return self._at_rest(producer_id, 0, last, timeout_ms, wall_ms)

    def _at_rest(self, producer_id: int, epoch: int, last_epoch: int, timeout_ms: int, wall_ms: int) -> Transaction:
        return Transaction(
            producer_id=producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            previous_producer_id=self.producer_id,
            timeout_ms=timeout_ms,
            update_timestamp_ms=wall_ms,
        )

    # Add partitions

    def add(self, partitions: tuple[TopicPartition, ...], client_version: int, wall_ms: int) -> Transaction:
        """Begins a transaction, or widens it."""
        begins = self.state is not TxnState.ONGOING
        invariant(not begins or self.state.is_at_rest, f"partitions are added while it is {self.state.title}")
        known = () if begins else self.partitions
        return replace(
            self,
            state=TxnState.ONGOING,
            partitions=tuple(sorted({*known, *partitions})),
            start_timestamp_ms=wall_ms if begins else self.start_timestamp_ms,
            update_timestamp_ms=wall_ms,
            client_version=client_version,
        )

    # End

    def is_repeated_end(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether an EndTxn with that epoch is the one that ended this transaction and bumped its epoch."""
        if self.client_version < EPOCH_BUMP_VERSION or self.state in (TxnState.ONGOING, TxnState.EMPTY):
            return False
        if producer_id == self.producer_id and producer_epoch == self.producer_epoch - 1:
            return True
        is_complete = self.state in (TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT)
        is_rotated = producer_id == self.previous_producer_id and producer_epoch == LAST_EPOCH
        return is_complete and is_rotated and self.producer_epoch == 0

    def prepare(
        self, *, committed: bool, client_version: int, wall_ms: int, next_producer_id: int = NO_PRODUCER_ID
    ) -> Transaction:
        """The outcome is decided. An abort may also end a transaction that no partition has been added to."""
        is_open = self.state is TxnState.ONGOING
        invariant(is_open or (not committed and self.state.is_at_rest), f"it ends while it is {self.state.title}")
        bumps = client_version >= EPOCH_BUMP_VERSION
        return replace(
            self,
            state=TxnState.PREPARE_COMMIT if committed else TxnState.PREPARE_ABORT,
            producer_epoch=self.producer_epoch + 1 if bumps else self.producer_epoch,
            last_producer_epoch=self.producer_epoch if bumps else self.last_producer_epoch,
            next_producer_id=next_producer_id,
            partitions=self.partitions if is_open else (),
            start_timestamp_ms=self.start_timestamp_ms if is_open else wall_ms,
            update_timestamp_ms=wall_ms,
            client_version=client_version,
        )

    def fence(self, server_version: int, wall_ms: int) -> Transaction:
        """Aborts for a new owner, or since its time is up: the present owner's epoch is not valid any more."""
        aborted = self.prepare(committed=False, client_version=server_version, wall_ms=wall_ms)
        return replace(
            aborted, producer_epoch=self.producer_epoch + 1, last_producer_epoch=NO_PRODUCER_EPOCH
        )  # once, whatever the version

    def complete(self, wall_ms: int) -> Transaction:
        """All markers are written."""
        invariant(self.state.is_preparing, f"it completes while it is {self.state.title}")
        is_rotated = self.next_producer_id != NO_PRODUCER_ID
        return replace(
            self,
            state=TxnState.COMPLETE_COMMIT if self.is_commit else TxnState.COMPLETE_ABORT,
            producer_id=self.next_producer_id if is_rotated else self.producer_id,
            producer_epoch=0 if is_rotated else self.producer_epoch,
            last_producer_epoch=self.last_producer_epoch if not is_rotated else self.producer_epoch,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            partitions=(),
            update_timestamp_ms=wall_ms,
        )

    @property
    def is_commit(self) -> bool:
        return self.state in (TxnState.PREPARE_COMMIT, TxnState.COMPLETE_COMMIT)
