"""What transactional clients saw, and the invariants of transactions.

A transaction is committed, aborted, or its outcome is unknown: a commit was sent, and no answer came. Under
read_committed the records of committed transactions are read, each once and in order, on every partition; of a
transaction of unknown outcome it is all or nothing, and whoever reads a part of it learns that it is committed.

A record names its transaction: ``t0.2/7:3`` is record 3 of transaction 7 of the second instance of the transactional id
t0. The copy of a record has its origin behind ``=``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from barnabas.sim.history import Violation, around_difference
from barnabas.wire.batch import iterate
from barnabas.wire.records import ControlType, decode_batch, read_control_type

Place = tuple[str, int]
"""(topic, partition)."""
GroupPlace = tuple[str, str, int]
"""(group, topic, partition)."""


class Outcome(Enum):
    OPEN = "open"
    """Nobody has asked to commit it: it may only be aborted."""
    UNKNOWN = "unknown"
    """A commit was sent; no answer, or none that says what became of it."""
    COMMITTED = "committed"
    ABORTED = "aborted"


class Transaction:
    def __init__(self, name: str) -> None:
        self.name = name
        self.outcome = Outcome.OPEN
        self.records: dict[Place, list[bytes]] = {}
        """In the order in which they were sent."""
        self.offsets: dict[GroupPlace, int] = {}
        self._count = 0

    def write(self, place: Place, origins: Iterable[bytes | None]) -> list[bytes]:
        """Values for new records: copies of these, or records without an origin."""
        values = []
        for origin in origins:
            self._count += 1
            copied = b"" if origin is None else b"=" + origin
            values.append(f"{self.name}:{self._count}".encode() + copied)
        self.records.setdefault(place, []).extend(values)
        return values

    @property
    def may_be_read(self) -> bool:
        return self.outcome in (Outcome.UNKNOWN, Outcome.COMMITTED)


def name_of(value: bytes) -> str:
    """The transaction that a record names."""
    return value.partition(b":")[0].decode()


def origin_of(value: bytes) -> bytes:
    """What a copy was made of."""
    return value.partition(b"=")[2]


class TransactionHistory:
    def __init__(self) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.ended: Counter[str] = Counter()
        """Transactional id -> transactions whose end is known."""
        self._seen: dict[Place, dict[int, bytes]] = {}
        self._offsets: dict[GroupPlace, int] = {}

    # Producers

    def begin(self, name: str) -> Transaction:
        transaction = self.transactions[name] = Transaction(name)
        return transaction

    def end(self, transaction: Transaction, outcome: Outcome) -> None:
        """``outcome`` is what the client knows now; a reader may know more already."""
        if transaction.outcome is Outcome.COMMITTED and outcome is Outcome.ABORTED:
            raise Violation(f"{transaction.name} is said to be aborted, and was read")
        transaction.outcome = outcome
        self.ended[transaction.name.partition(".")[0]] += 1
        if outcome is Outcome.COMMITTED:
            for place, offset in transaction.offsets.items():
                self._offsets[place] = max(offset, self._offsets.get(place, -1))

    # Readers

    def read(self, reader: str, place: Place, offset: int, value: bytes) -> None:
        """A read_committed consumer returned the record."""
        transaction = self.transactions.get(name_of(value))
        if transaction is None or value not in transaction.records.get(place, ()):
            raise Violation(f"{reader} read {value!r} from {place} at {offset}, which was never sent there")
        if not transaction.may_be_read:
            raise Violation(f"{reader} read {value!r} from {place} at {offset}: it is {transaction.outcome.value}")
        transaction.outcome = Outcome.COMMITTED
        before = self._seen.setdefault(place, {}).setdefault(offset, value)
        if before != value:
            raise Violation(f"{place} had {before!r} at offset {offset}, and now {value!r}")

    def read_range(self, reader: str, place: Place, start: int, end: int, values: Mapping[int, bytes]) -> None:
        """The same range has the same committed records, whenever it is read."""
        for offset, value in values.items():
            self.read(reader, place, offset, value)
        missing = [offset for offset in self._seen.get(place, ()) if start <= offset < end and offset not in values]
        if missing:
            value = self._seen[place][missing[0]]
            raise Violation(f"{reader} read {place} from {start} to {end} without {value!r} at offset {missing[0]}")

    # Offsets

    def committed_so_far(self, place: GroupPlace) -> int:
        """An offset that every later fetch must have reached."""
        return self._offsets.get(place, -1)

    def fetch_offset(self, place: GroupPlace, offset: int, at_least: int) -> None:
        """A group's stable offset was fetched; ``at_least`` was committed before."""
        if offset < at_least:
            raise Violation(f"{place} was committed at {at_least}, and {offset} is fetched")
        asked = (each for each in self.transactions.values() if each.offsets.get(place) == offset)
        if offset >= 0 and not any(transaction.may_be_read for transaction in asked):
            raise Violation(f"{place} is at {offset}, which no committed transaction contains")

    # The end

    def check(self, found: Mapping[Place, Mapping[int, bytes]]) -> None:
        """``found`` is what is committed in the logs at the end, by place and offset."""
        visible: dict[str, dict[Place, list[bytes]]] = {}
        for place, values in found.items():
            self._check_seen(place, values)
            for offset in sorted(values):
                visible.setdefault(name_of(values[offset]), {}).setdefault(place, []).append(values[offset])
        for name in visible.keys() - self.transactions.keys():
            raise Violation(f"the logs hold {visible[name]}, which nobody sent")
        for transaction in self.transactions.values():
            _check_whole(transaction, visible.get(transaction.name, {}))

    def _check_seen(self, place: Place, values: Mapping[int, bytes]) -> None:
        for offset, value in self._seen.get(place, {}).items():
            if values.get(offset) != value:
                raise Violation(f"{value!r} was read from {place} at {offset}, and is not committed in the log")

    def check_copies(self, inputs: Mapping[int, bytes], copies: Mapping[int, bytes], place: Place) -> None:
        """What was consumed and produced is the input, each record once and in order."""
        expected = [inputs[offset] for offset in sorted(inputs)]
        copied = [origin_of(copies[offset]) for offset in sorted(copies)]
        if copied != expected:
            raise Violation(f"the copies of {place} are not its records: {around_difference(copied, expected)}")


def _check_whole(transaction: Transaction, visible: dict[Place, list[bytes]]) -> None:
    if not visible:
        if transaction.outcome is Outcome.COMMITTED and transaction.records:
            raise Violation(f"{transaction.name} is committed, and its records are not: {transaction.records}")
        return
    if not transaction.may_be_read:
        raise Violation(f"{transaction.name} is {transaction.outcome.value}, and its records are committed: {visible}")
    if visible != transaction.records:
        raise Violation(f"{transaction.name} is torn: there is {visible} of {transaction.records}")


class CommittedLog(NamedTuple):
    records: dict[int, bytes]
    """What read_committed consumers may read, by offset."""
    open_producers: list[int]
    """Those with records that no marker follows."""


def committed_log(content: bytes) -> CommittedLog:
    """What the markers in a log say, without the broker's own indexes."""
    found: dict[int, bytes] = {}
    undecided: dict[int, dict[int, bytes]] = {}
    for position, header in iterate(content):
        records = decode_batch(content, position)
        if header.is_control:
            decided = undecided.pop(header.producer_id, {})
            if read_control_type(records[0]) is ControlType.COMMIT:
                found |= decided
        else:
            target = undecided.setdefault(header.producer_id, {}) if header.is_transactional else found
            target.update((record.offset, bytes(record.value or b"")) for record in records)
    return CommittedLog(found, sorted(undecided))
