"""What the logs of other partitions hold of a transaction: the producer of its records, and the marker that ends it."""

from __future__ import annotations

from typing import NamedTuple


class Producer(NamedTuple):
    """Whose transaction a record belongs to."""

    producer_id: int
    producer_epoch: int
    guard: object = None
    """Proof that the transaction's coordinator knows the partition; see ``storage.producer_state``."""


class EndMarker(NamedTuple):
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    transaction_version: int = 0
