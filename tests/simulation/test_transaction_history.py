"""The rules of transactions, against histories made by hand: each that breaks one is found."""

from __future__ import annotations

import pytest

from barnabas.sim.committed import filter_aborted
from barnabas.sim.history import History, Violation
from barnabas.sim.transaction_history import Outcome, Transaction, TransactionHistory, committed_log
from barnabas.wire.api.fetch import AbortedTransaction
from barnabas.wire.records import Record, encode_batch, encode_end_marker

LEFT, RIGHT = ("payments", 0), ("payments", 1)
POSITION = "copiers", "payments", 0


def _begin(book: TransactionHistory, outcome: Outcome, name: str = "t0.1/1") -> Transaction:
    """With a record on the left and two on the right."""
    transaction = book.begin(name)
    transaction.write(LEFT, [None])
    transaction.write(RIGHT, [None, None])
    transaction.outcome = outcome
    return transaction


ALL = {LEFT: {0: b"t0.1/1:1"}, RIGHT: {0: b"t0.1/1:2", 1: b"t0.1/1:3"}}
NONE: dict[tuple[str, int], dict[int, bytes]] = {LEFT: {}, RIGHT: {}}


@pytest.mark.parametrize(
    ("outcome", "found"),
    [
        (Outcome.COMMITTED, ALL),
        (Outcome.UNKNOWN, ALL),
        (Outcome.UNKNOWN, NONE),
        (Outcome.ABORTED, NONE),
        (Outcome.OPEN, NONE),
    ],
)
def test_whole_transactions_pass(outcome: Outcome, found: dict[tuple[str, int], dict[int, bytes]]) -> None:
    book = TransactionHistory()
    _begin(book, outcome)
    book.check(found)


@pytest.mark.parametrize(
    ("outcome", "found", "message"),
    [
        (Outcome.COMMITTED, NONE, "its records are not"),
        (Outcome.COMMITTED, {**ALL, RIGHT: {}}, "torn"),
        (Outcome.COMMITTED, {**ALL, RIGHT: {0: b"t0.1/1:2"}}, "torn"),
        (Outcome.COMMITTED, {**ALL, RIGHT: {0: b"t0.1/1:3", 1: b"t0.1/1:2"}}, "torn"),
        (Outcome.COMMITTED, {**ALL, LEFT: {0: b"t0.1/1:1", 5: b"t0.1/1:1"}}, "torn"),
        (Outcome.UNKNOWN, {**ALL, LEFT: {}}, "torn"),
        (Outcome.ABORTED, ALL, "aborted, and its records are committed"),
        (Outcome.OPEN, {**NONE, LEFT: {0: b"t0.1/1:1"}}, "open, and its records are committed"),
        (Outcome.COMMITTED, {**ALL, LEFT: {0: b"t0.1/1:1", 1: b"t9.1/1:1"}}, "nobody sent"),
    ],
)
def test_torn_lost_and_aborted_transactions_are_found(
    outcome: Outcome, found: dict[tuple[str, int], dict[int, bytes]], message: str
) -> None:
    book = TransactionHistory()
    _begin(book, outcome)
    with pytest.raises(Violation, match=message):
        book.check(found)


@pytest.mark.parametrize("outcome", [Outcome.OPEN, Outcome.ABORTED])
def test_a_record_that_was_not_committed_may_not_be_read(outcome: Outcome) -> None:
    book = TransactionHistory()
    _begin(book, outcome)
    with pytest.raises(Violation, match=f"it is {outcome.value}"):
        book.read("reader", LEFT, 0, b"t0.1/1:1")


def test_a_read_record_makes_an_unknown_outcome_known() -> None:
    book = TransactionHistory()
    _begin(book, Outcome.UNKNOWN)
    book.read("reader", LEFT, 0, b"t0.1/1:1")
    with pytest.raises(Violation, match="not committed in the log"):
        book.check(NONE)
    with pytest.raises(Violation, match="torn"):
        book.check({**ALL, RIGHT: {}})


def test_a_transaction_that_was_read_may_not_be_answered_as_aborted() -> None:
    book = TransactionHistory()
    transaction = _begin(book, Outcome.UNKNOWN)
    book.read("reader", LEFT, 0, b"t0.1/1:1")
    with pytest.raises(Violation, match="said to be aborted"):
        book.end(transaction, Outcome.ABORTED)


def test_a_record_of_another_partition_is_a_phantom() -> None:
    book = TransactionHistory()
    _begin(book, Outcome.COMMITTED)
    with pytest.raises(Violation, match="never sent there"):
        book.read("reader", RIGHT, 0, b"t0.1/1:1")


def test_a_range_that_is_read_again_has_the_same_records() -> None:
    book = TransactionHistory()
    _begin(book, Outcome.COMMITTED)
    book.read_range("reader", RIGHT, 0, 3, ALL[RIGHT])
    book.read_range("reader", RIGHT, 1, 3, {1: b"t0.1/1:3"})
    with pytest.raises(Violation, match="without b't0"):
        book.read_range("reader", RIGHT, 0, 3, {1: b"t0.1/1:3"})


def test_offsets_apply_with_their_transaction() -> None:
    book = TransactionHistory()
    first, second = _begin(book, Outcome.UNKNOWN), _begin(book, Outcome.ABORTED, "t0.1/2")
    first.offsets, second.offsets = {POSITION: 5}, {POSITION: 9}
    book.fetch_offset(POSITION, -1, -1)
    book.fetch_offset(POSITION, 5, -1)
    with pytest.raises(Violation, match="no committed transaction"):
        book.fetch_offset(POSITION, 9, -1)
    book.end(first, Outcome.COMMITTED)
    with pytest.raises(Violation, match="committed at 5, and -1 is fetched"):
        book.fetch_offset(POSITION, -1, book.committed_so_far(POSITION))


def test_a_producer_id_and_epoch_have_one_owner() -> None:
    history = History()
    history.grant(7, 0, "t0.1")
    history.grant(7, 1, "t0.2")
    with pytest.raises(Violation, match="both got producer id 7 with epoch 1"):
        history.grant(7, 1, "t0.1")


@pytest.mark.parametrize("copies", [[b"x:1=a"], [b"x:1=a", b"x:2=b", b"y:1=b"], [b"x:1=b", b"x:2=a"]])
def test_lost_doubled_and_reordered_copies_are_found(copies: list[bytes]) -> None:
    book = TransactionHistory()
    inputs = {0: b"a", 3: b"b"}
    book.check_copies(inputs, {0: b"x:1=a", 1: b"x:2=b"}, LEFT)
    with pytest.raises(Violation, match="copies"):
        book.check_copies(inputs, dict(enumerate(copies)), LEFT)


def _data(offset: int, producer_id: int, *values: bytes) -> bytes:
    return encode_batch(
        [Record(offset + number, 0, None, value) for number, value in enumerate(values)],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=producer_id >= 0,
    )


def _marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    return encode_end_marker(
        commit=commit, coordinator_epoch=0, producer_id=producer_id, producer_epoch=0, timestamp=0, base_offset=offset
    )


LOG = b"".join(
    [
        _data(0, 1, b"aborted"),
        _data(1, 2, b"committed", b"too"),
        _data(3, -1, b"plain"),
        _marker(4, 1, commit=False),
        _data(5, 1, b"later"),
        _marker(6, 2, commit=True),
        _marker(7, 1, commit=True),
        _data(8, 3, b"open"),
    ]
)
COMMITTED = {1: b"committed", 2: b"too", 3: b"plain", 5: b"later"}


def test_markers_in_a_log_decide_what_is_committed() -> None:
    assert committed_log(LOG) == (COMMITTED, [3])


def test_a_consumer_skips_an_aborted_producer_up_to_its_marker() -> None:
    stable = LOG[: LOG.rindex(_data(8, 3, b"open"))]
    assert filter_aborted(stable, [AbortedTransaction(1, 0)], 0) == (COMMITTED, 8)
