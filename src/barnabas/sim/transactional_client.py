"""Simulated transactional producers: the protocol of one instance, its mishaps, and the instance that takes over.

An instance that is replaced does not know it, and goes on as a zombie until a broker refuses it. One that is silent for
longer than its time-out finds its transaction aborted. What a client may not know is whether a commit that was never
answered has happened; everything else it knows.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from barnabas.model.errors import ErrorCode
from barnabas.sim import client
from barnabas.sim.client import PAUSE_MS, Client, Place
from barnabas.sim.coordinated import GROUP, RETRIED, TRANSACTION, Asked, CoordinatedClient
from barnabas.sim.history import Violation
from barnabas.sim.transaction_history import Outcome, Transaction, TransactionHistory
from barnabas.wire.api import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
    produce,
    txn_offset_commit,
)
from barnabas.wire.records import Record, encode_batch

TIMEOUTS_MS = [2500, 4000, 6000]
GIVE_UP_CHANCE = 0.2
"""That a batch without an answer is given up with its transaction, instead of sent again."""
SUCCESSOR_MS = 2000.0
ZOMBIE_MS = 3000.0
LAST_STEP = 6
MAX_PACE = 3.0
PEACEFUL_REST_MS = 2000.0

FENCED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
"""The instance cannot go on with its transaction: another has taken over, or its time was up."""


class Dialect(NamedTuple):
    """Versions of requests, which decide how the client takes part in transactions."""

    init: int
    produce: int
    offsets: int
    end: int
    bumps: bool
    """Transaction version 2 (KIP-890): every end bumps the epoch, and partitions are added by Produce."""


DIALECTS = [
    Dialect(init=4, produce=9, offsets=3, end=3, bumps=False),
    Dialect(init=5, produce=11, offsets=4, end=4, bumps=False),
    Dialect(init=5, produce=12, offsets=5, end=5, bumps=True),
    Dialect(init=5, produce=12, offsets=5, end=5, bumps=True),
]


class Identity:
    """A transactional id, which several instances claim one after the other."""

    def __init__(self, transactional_id: str, book: TransactionHistory, rest_ms: float) -> None:
        self.transactional_id = transactional_id
        self.book = book
        self.rest_ms = rest_ms
        """Between two transactions, at most."""
        self.newest = 1
        self.begun = 0
        """Transactions so far."""


class Mishap(NamedTuple):
    step: int
    """Of the transaction, at which it happens."""
    silent_ms: float
    successor_ms: float | None
    """Until another instance takes over."""
    dies: bool


class World(client.World, Protocol):
    clients: list[Client]
    is_at_peace: bool

    def trace(self, text: str) -> None: ...


class TransactionalClient(CoordinatedClient):
    """One instance of a transactional id."""

    world: World
    mishap_chance = 0.15

    def __init__(self, world: World, identity: Identity, rng: random.Random, topics: list[tuple[str, int]]) -> None:
        super().__init__(world, identity.transactional_id, rng, topics, identity.book)
        self.identity = identity
        self.number = identity.newest
        self.dialect = rng.choice(DIALECTS)
        self.timeout_ms = rng.choice(TIMEOUTS_MS)
        self.producer_id, self.producer_epoch = -1, -1
        self.transaction = Transaction("none")
        self._sequences: dict[Place, int] = {}
        self._added: set[Place] = set()
        self._steps = 0
        self._mishap: Mishap | None = None

    @abstractmethod
    def ready(self) -> None:
        """It has a producer id and epoch, and no transaction is open."""

    @abstractmethod
    def replacement(self) -> TransactionalClient:
        """Another instance of the same transactional id."""

    def later(self, callback: Callable[[], None], span: tuple[float, float] = PAUSE_MS) -> None:
        """A transaction takes many requests: the pauses between them are shorter at peace, when others take long."""
        pace = min(self.world.pace, MAX_PACE)
        self.world.scheduler.after(self.random.uniform(*span) * pace, callback)

    def rest(self, then: Callable[[], None]) -> None:
        """Between two transactions."""
        at_most_ms = min(self.identity.rest_ms, PEACEFUL_REST_MS) if self.world.is_at_peace else self.identity.rest_ms
        self.world.scheduler.after(self.random.uniform(0, at_most_ms), then)

    # Instances

    def run(self) -> None:
        request = init_producer_id.InitProducerIdRequest(
            self.name, self.timeout_ms, self.producer_id, self.producer_epoch
        )
        self.ask(
            Asked((self.name, TRANSACTION), request, self.dialect.init, lambda r: [r.error_code], self._initialized)
        )

    def _initialized(self, response: Any, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            self._own(response)
            self.ready()
        else:
            self.fail(code, "InitProducerId")

    def _own(self, response: Any) -> None:
        self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
        self._sequences.clear()
        owner = f"{self.name}.{self.number} in request {self._correlation_id}"
        self.world.history.grant(self.producer_id, self.producer_epoch, owner)

    def fail(self, code: ErrorCode, where: str) -> None:
        """It is fenced; a new process begins where this was the newest."""
        if code not in FENCED:
            raise Violation(f"{self.name}.{self.number} is answered {code.name} to {where}")
        self.world.trace(f"{self.name}.{self.number} is answered {code.name} to {where}, in {self.transaction.name}")
        self.is_gone = True
        if self.number == self.identity.newest:
            self.later(self.succeed)

    def succeed(self) -> None:
        if self.number != self.identity.newest:
            return
        self.identity.newest += 1
        successor = self.replacement()
        successor.is_done = self.is_done
        self.world.clients.append(successor)
        self.world.trace(f"{self.name}.{successor.number} begins with {successor.dialect}")
        successor.start()

    # Transactions

    def begin(self) -> None:
        self.identity.begun += 1
        self.transaction = self.book.begin(f"{self.name}.{self.number}/{self.identity.begun}")
        self._added.clear()
        self._steps = 0
        self._mishap = self._draw_mishap()

    def _draw_mishap(self) -> Mishap | None:
        rng = self.random
        if self.world.is_at_peace or rng.random() >= self.mishap_chance:
            return None
        step = rng.randint(1, LAST_STEP)
        too_long_ms = self.timeout_ms + rng.uniform(-200, 1500)
        return rng.choice(
            [
                Mishap(step, too_long_ms, None, dies=False),
                Mishap(step, too_long_ms, rng.uniform(0, self.timeout_ms), dies=False),
                Mishap(step, 0.0, 0.0, dies=False),
                Mishap(step, rng.uniform(0, ZOMBIE_MS), 0.0, dies=False),
                Mishap(step, 0.0, rng.uniform(0, SUCCESSOR_MS), dies=True),
            ]
        )

    def next_step(self, then: Callable[[], None]) -> None:
        """Between two requests of a transaction."""
        self._steps += 1
        mishap = self._mishap
        if mishap is None or mishap.step != self._steps:
            self.later(then)
            return
        self.world.trace(f"{self.name}.{self.number} in {self.transaction.name}: {mishap}")
        if mishap.successor_ms is not None:
            self.world.scheduler.after(mishap.successor_ms, self.succeed)
        if mishap.dies:
            self.is_gone = True
        else:
            self.world.scheduler.after(mishap.silent_ms, then)

    # Records

    def write(self, place: Place, origins: Iterable[bytes | None], then: Callable[[], None]) -> None:
        values = self.transaction.write(place, origins)
        if self.dialect.bumps or place in self._added:
            self._produce(place, values, then)
            return
        topic = add_partitions_to_txn.AddPartitionsToTxnTopic(place[0], [place[1]])
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[topic],
        )

        def added(_: Any, code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                self._added.add(place)
                self.next_step(lambda: self._produce(place, values, then))
            else:
                self.fail(code, "AddPartitionsToTxn")

        self.ask(Asked((self.name, TRANSACTION), request, 3, _added_codes, added))

    def _produce(self, place: Place, values: list[bytes], then: Callable[[], None]) -> None:
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + len(values)
        batch = encode_batch(
            [Record(-1, 1_000_000, b"key", value) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        self._send(place, batch, values, then)

    def _send(self, place: Place, batch: bytes, values: list[bytes], then: Callable[[], None]) -> None:
        if self.is_gone:
            return
        leader = self.leaders.get(place)
        if leader is None:
            self.refresh(lambda: self._send(place, batch, values, then))
            return
        data = produce.TopicProduceData(place[0], partition_data=[produce.PartitionProduceData(place[1], batch)])
        request = produce.ProduceRequest(self.name, -1, 2000, [data])
        self.call(
            request, self.dialect.produce, lambda response: self._sent(response, place, batch, values, then), leader
        )

    def _sent(self, response: Any, place: Place, batch: bytes, values: list[bytes], then: Callable[[], None]) -> None:
        answer = None if response is None else response.responses[0].partition_responses[0]
        code = ErrorCode.REQUEST_TIMED_OUT if answer is None else ErrorCode(answer.error_code)
        if answer is not None and code is ErrorCode.NONE:
            for number, value in enumerate(values):
                self.world.history.acknowledge(*place, answer.base_offset + number, value)
            self.next_step(then)
        elif code not in RETRIED:
            self.fail(code, f"Produce to {place}")
        elif answer is None and self.random.random() < GIVE_UP_CHANCE:
            self.end(committed=False, then=self.run)
        else:
            if code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                self.leaders.pop(place, None)
            self.later(lambda: self._send(place, batch, values, then))

    # Offsets

    def commit_offsets(self, group: str, offsets: dict[Place, int], then: Callable[[], None]) -> None:
        self.transaction.offsets = {(group, *place): offset for place, offset in offsets.items()}
        if self.dialect.bumps:
            self._commit_offsets(group, offsets, then)
            return
        request = add_offsets_to_txn.AddOffsetsToTxnRequest(self.name, self.producer_id, self.producer_epoch, group)

        def added(_: Any, code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                self.next_step(lambda: self._commit_offsets(group, offsets, then))
            else:
                self.fail(code, "AddOffsetsToTxn")

        self.ask(Asked((self.name, TRANSACTION), request, 3, lambda r: [r.error_code], added))

    def _commit_offsets(self, group: str, offsets: dict[Place, int], then: Callable[[], None]) -> None:
        by_topic: dict[str, list[txn_offset_commit.TxnOffsetCommitRequestPartition]] = {}
        for (topic, number), offset in offsets.items():
            partition = txn_offset_commit.TxnOffsetCommitRequestPartition(number, offset)
            by_topic.setdefault(topic, []).append(partition)
        topics = [txn_offset_commit.TxnOffsetCommitRequestTopic(*item) for item in by_topic.items()]
        request = txn_offset_commit.TxnOffsetCommitRequest(
            self.name, group, self.producer_id, self.producer_epoch, topics=topics
        )

        def committed(_: Any, code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                self.next_step(then)
            else:
                self.fail(code, "TxnOffsetCommit")

        self.ask(Asked((group, GROUP), request, self.dialect.offsets, _committed_codes, committed))

    # The end of a transaction

    def end(self, *, committed: bool, then: Callable[[], None]) -> None:
        request = end_txn.EndTxnRequest(self.name, self.producer_id, self.producer_epoch, committed)
        self.transaction.outcome = Outcome.UNKNOWN if committed else Outcome.ABORTED

        def ended(response: Any, code: ErrorCode) -> None:
            self._ended(asked, response, code, then)

        asked = Asked((self.name, TRANSACTION), request, self.dialect.end, lambda r: [r.error_code], ended)
        self.ask(asked)

    def _ended(self, asked: Asked, response: Any, code: ErrorCode, then: Callable[[], None]) -> None:
        committed = asked.request.committed  # type: ignore[attr-defined]
        if code is ErrorCode.NONE:
            self.book.end(self.transaction, Outcome.COMMITTED if committed else Outcome.ABORTED)
            if self.dialect.bumps:
                self._own(response)
            self.later(then)
            return
        if committed and asked.attempts == 1:
            self.book.end(self.transaction, Outcome.ABORTED)
        self.fail(code, f"EndTxn with committed={committed}")


def _added_codes(response: Any) -> list[int]:
    topics = response.results_by_topic_v3_and_below
    return [each.partition_error_code for topic in topics for each in topic.results_by_partition]


def _committed_codes(response: Any) -> list[int]:
    return [each.error_code for topic in response.topics for each in topic.partitions]
