"""Transactions during a cleaning: which records were aborted, and which markers can be removed.

A marker stays as long as a batch of its transaction is left, even an empty one. Then it gets a delete horizon, like a
tombstone. The rules are those of Kafka's CleanedTransactionMetadata. Batches must be passed in the order of the log.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.storage.transaction_index import AbortedTransaction
from barnabas.wire.batch import BatchHeader
from barnabas.wire.records import ControlType


class CleanedTransactions:
    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        """``aborted`` ascends by first offset."""
        self._waiting = list(reversed(aborted))
        self._aborted: dict[int, AbortedTransaction] = {}  # of producer ids; begun and not yet ended
        self._seen_aborted: set[int] = set()  # producers of those of which a batch was seen
        self._committed: set[int] = set()  # producers of other transactions of which a batch was seen

    def _advance(self, offset: int) -> None:
        while self._waiting and self._waiting[-1].first_offset <= offset:
            entry = self._waiting.pop()
            if entry.last_offset >= offset:  # or its marker lies before what we were shown, and it is over
                self._aborted.setdefault(entry.producer_id, entry)

    def is_aborted(self, header: BatchHeader) -> bool:
        """Processes a batch of records; returns whether its transaction was aborted."""
        self._advance(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._seen_aborted.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def end(self, header: BatchHeader, kind: ControlType | None) -> tuple[bool, AbortedTransaction | None]:
        """Takes a control batch in: whether it may go, and the entry that the cleaned segment's index needs."""
        self._advance(header.last_offset)
        if kind is ControlType.ABORT:
            entry = self._aborted.pop(header.producer_id, None)
            if entry is not None and header.producer_id in self._seen_aborted:
                self._seen_aborted.discard(header.producer_id)
                return False, entry
            return True, None
        if kind is ControlType.COMMIT:
            was_seen = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not was_seen, None
        return False, None
