"""The transactional clients of a run: writers, a consume-transform-produce worker, a reader; and what holds at rest.

They draw from a random stream of their own: a seed without them is the run that it was.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Protocol

from barnabas.model.errors import ErrorCode
from barnabas.model.ids import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.sim.check import Checker, bytes_of
from barnabas.sim.client import Client, Place, RoutingClient
from barnabas.sim.committed import READ_COMMITTED, Chunk, CommittedReader
from barnabas.sim.coordinated import GROUP, Asked
from barnabas.sim.history import Violation
from barnabas.sim.transaction_history import CommittedLog, TransactionHistory, committed_log
from barnabas.sim.transactional_client import Identity, TransactionalClient
from barnabas.sim.transactional_client import World as ClientWorld
from barnabas.wire.api import list_offsets, list_transactions, offset_fetch

INPUT, OUTPUT = ("payments", 2), ("ledger", 2)
TOPICS = [INPUT, OUTPUT]
STATE_PARTITIONS = 2
ALL_TOPICS = [*TOPICS, (OFFSETS_TOPIC, 2), (TRANSACTIONS_TOPIC, STATE_PARTITIONS)]
"""Those that transactions write to."""
COPIERS = "copiers"
COMMIT_CHANCE = 0.75
COPY_CHANCE = 0.85
"""That a copy is committed."""
ABANDON_CHANCE = 0.1
"""That a writer which has to stop leaves its transaction open, at any step."""
MAX_COPIED = 50
"""No more is gathered for one transaction beyond this many records."""
RESTS_MS = [500.0, *[5000.0] * 4]
"""Between two transactions of a client, at most: each takes dozens of requests, so few seeds have many."""
LATEST = -1
"""The timestamp that stands for a partition's end."""
AT_REST = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})


class Writer(TransactionalClient):
    """Writes several batches to several partitions in each transaction."""

    def __init__(self, world: ClientWorld, identity: Identity, rng: random.Random) -> None:
        super().__init__(world, identity, rng, [INPUT])
        self._left = 0

    def replacement(self) -> Writer:
        return Writer(self.world, self.identity, random.Random(self.random.getrandbits(64)))

    def ready(self) -> None:
        self.rest(self._begin)

    def _begin(self) -> None:
        if not self.is_done:
            self.begin()
            self._left = self.random.choice([1, 2, 2, 4])
            self._go_on()

    def _go_on(self) -> None:
        if self.is_done and self.random.random() < ABANDON_CHANCE:
            self.world.trace(f"{self.name}.{self.number} leaves {self.transaction.name} open")
            return
        if self._left:
            self._left -= 1
            place = INPUT[0], self.random.randrange(INPUT[1])
            self.write(place, [None] * self.random.choice([1, 1, 3]), self._go_on)
        else:
            self.end(committed=self.random.random() < COMMIT_CHANCE, then=self.ready)


class Copier(TransactionalClient):
    """Copies every record once: the records and the position behind them are committed in one transaction."""

    mishap_chance = 0.1
    max_bytes = (4000, 1 << 20)

    def __init__(self, world: ClientWorld, identity: Identity, rng: random.Random) -> None:
        super().__init__(world, identity, rng, TOPICS)
        self._gathered: dict[Place, Chunk] = {}
        self.is_idle = False
        """It has found nothing to copy at its positions, and has no transaction."""

    def replacement(self) -> Copier:
        return Copier(self.world, self.identity, random.Random(self.random.getrandbits(64)))

    def ready(self) -> None:
        """Where the group stands, once no transaction of a former instance is open (KIP-447)."""
        numbers = list(range(INPUT[1]))
        least = {number: self.book.committed_so_far((COPIERS, INPUT[0], number)) for number in numbers}
        topics = [offset_fetch.OffsetFetchRequestTopic(INPUT[0], numbers)]
        request = offset_fetch.OffsetFetchRequest(COPIERS, topics=topics, require_stable=True)

        def fetched(response: Any, code: ErrorCode) -> None:
            if code is not ErrorCode.NONE:
                raise Violation(f"{self.name} is answered {code.name} to OffsetFetch")
            for answer in response.topics[0].partitions:
                number, offset = answer.partition_index, answer.committed_offset
                self.book.fetch_offset((COPIERS, INPUT[0], number), offset, least[number])
                self.positions[INPUT[0], number] = max(offset, 0)
            self._poll()

        self.ask(Asked((COPIERS, GROUP), request, 7, _fetched_codes, fetched))

    def _poll(self) -> None:
        if not self.is_gone:
            self.fetch_committed(self._polled)

    def _polled(self, chunks: list[Chunk]) -> None:
        """Gathers what there is, up to a limit."""
        for chunk in chunks:
            self.book.read_range(self.name, chunk.place, chunk.start, chunk.end, chunk.values)
            former = self._gathered.get(chunk.place)
            values = chunk.values if former is None else former.values | chunk.values
            if values:
                self._gathered[chunk.place] = chunk._replace(values=values)
        has_moved = any(chunk.end > chunk.start for chunk in chunks)
        count = sum(len(chunk.values) for chunk in self._gathered.values())
        self.is_idle = not has_moved and not count
        if has_moved and count < MAX_COPIED:
            self.later(self._poll)
        elif self._gathered:
            self._transact()
        elif self.random.random() < 0.5:
            self.later(self._poll)  # of another leader
        else:
            self.rest(self._poll)

    def _transact(self) -> None:
        gathered, self._gathered = list(self._gathered.values()), {}
        self.begin()
        offsets = {chunk.place: chunk.end for chunk in gathered}
        self._copy(gathered, lambda: self.commit_offsets(COPIERS, offsets, self._complete))

    def _copy(self, chunks: list[Chunk], then: Callable[[], None]) -> None:
        if not chunks:
            then()
            return
        chunk = chunks.pop()
        self.write((OUTPUT[0], chunk.place[1]), chunk.values.values(), lambda: self._copy(chunks, then))

    def _complete(self) -> None:
        is_committed = self.random.random() < COPY_CHANCE
        self.end(committed=is_committed, then=self._poll if is_committed else self.ready)


def _fetched_codes(response: Any) -> list[int]:
    return [response.error_code, *(each.error_code for topic in response.topics for each in topic.partitions)]


class World(ClientWorld, Protocol):
    checker: Checker

    def wait_for(self, condition: Callable[[], bool], what: str) -> None: ...


class Auditor(RoutingClient):
    """Asks every node which transactions it knows, and leaders where their partitions are stable."""

    def __init__(self, world: ClientWorld, rng: random.Random, ends: dict[Place, int]) -> None:
        super().__init__(world, "auditor", rng, TOPICS)
        self._ends = ends
        self._nodes = sorted(world.nodes)
        self._places = list(ends)
        self.has_ended = False

    def run(self) -> None:
        if self._nodes:
            self.call(list_transactions.ListTransactionsRequest(), 1, self._listed, self._nodes[0])
        elif not self._places:
            self.has_ended = True
        elif self._places[0] not in self.leaders:
            self.refresh(self.run)
        else:
            self._ask_end(*self._places[0])

    def _listed(self, response: Any) -> None:
        if response is not None and not response.error_code:
            node_id = self._nodes.pop(0)
            left = [each for each in response.transaction_states if each.transaction_state not in AT_REST]
            if left:
                raise Violation(f"node {node_id} coordinates transactions that do not end: {left}")
        self.later(self.run)

    def _ask_end(self, topic: str, number: int) -> None:
        partition = list_offsets.ListOffsetsPartition(number, timestamp=LATEST)
        request = list_offsets.ListOffsetsRequest(
            -1, READ_COMMITTED, [list_offsets.ListOffsetsTopic(topic, [partition])]
        )
        self.call(request, 7, self._answered_end, self.leaders[topic, number])

    def _answered_end(self, response: Any) -> None:
        answer = None if response is None else response.topics[0].partitions[0]
        if answer is not None and not answer.error_code:
            place = self._places.pop(0)
            if answer.offset != self._ends[place]:
                raise Violation(f"{place} ends at {self._ends[place]}, and read_committed at {answer.offset}")
        self.later(self.run)


class TransactionalLoad:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"transactions of {seed}")
        self.book = TransactionHistory()
        rest_ms = self.random.choice(RESTS_MS)
        self._identities = [Identity(name, self.book, rest_ms) for name in ("t0", "t1", "copier")]
        self._readers: list[CommittedReader] = []

    def settings(self, node_count: int) -> dict[str, str]:
        replicas = min(3, node_count)
        return {
            "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
            "transaction.state.log.replication.factor": str(replicas),
            "transaction.state.log.min.isr": str(min(2, replicas)),
        }

    def make_clients(self, world: World) -> list[Client]:
        first, second, copier = self._identities
        self._readers = [CommittedReader(world, "rc0", self._fork(), TOPICS, self.book)]
        return [
            Writer(world, first, self._fork()),
            Writer(world, second, self._fork()),
            Copier(world, copier, self._fork()),
            *self._readers,
        ]

    def _fork(self) -> random.Random:
        return random.Random(self.random.getrandbits(64))

    def progress(self) -> dict[str, int]:
        names = [each.transactional_id for each in self._identities]
        progress = {f"transactions of {name}": self.book.ended[name] for name in names}
        return progress | {reader.name: reader.fetched for reader in self._readers}

    # At rest

    def settle(self, world: World) -> None:
        """No producer writes any more: all is copied within a bound, and reading it once more shows the same."""
        self._check_stable(world, [INPUT])
        world.wait_for(lambda: self._is_copied(world), "not all records are copied")
        for reader in self._readers:
            reader.begins_anew = True
        world.wait_for(lambda: self._is_read(world), "not all records are read")
        auditor = Auditor(world, self._fork(), self._ends(world))
        auditor.run()
        world.wait_for(lambda: auditor.has_ended, "not all nodes tell of their transactions")
        world.wait_for(lambda: self._is_at_rest(world), "not all replicas know what is committed")

    def _ends(self, world: World) -> dict[Place, int]:
        places = [(topic, number) for topic, count in TOPICS for number in range(count)]
        return {
            place: max((replica.high_watermark for replica in world.checker.replicas_of(*place)), default=-1)
            for place in places
        }

    def _is_copied(self, world: World) -> bool:
        ends = self._ends(world)
        idle = [each for each in world.clients if isinstance(each, Copier) and each.is_idle and not each.is_gone]
        return any(all(ends[place] == offset for place, offset in each.positions.items()) for each in idle)

    def _is_read(self, world: World) -> bool:
        ends = self._ends(world)
        return all(not reader.begins_anew and reader.positions == ends for reader in self._readers)

    def _is_at_rest(self, world: World) -> bool:
        """Followers hear of a high watermark with their next fetch."""
        return all(
            replica.high_watermark == replica.log_end_offset
            for topic, count in ALL_TOPICS
            for number in range(count)
            for replica in world.checker.replicas_of(topic, number)
        )

    def check(self, world: World) -> None:
        """What the logs hold is what the clients know; nothing is undecided."""
        logs: dict[Place, CommittedLog] = {}
        for topic, count in TOPICS:
            for number in range(count):
                for replica in world.checker.replicas_of(topic, number):
                    logs[topic, number] = committed_log(bytes_of(replica))
        undecided = {place: log.open_producers for place, log in logs.items() if log.open_producers}
        if undecided:
            raise Violation(f"transactions without a marker at the end: {undecided}")
        self._check_stable(world, ALL_TOPICS)
        self.book.check({place: log.records for place, log in logs.items()})
        for number in range(INPUT[1]):
            inputs, copies = logs[INPUT[0], number].records, logs[OUTPUT[0], number].records
            self.book.check_copies(inputs, copies, (INPUT[0], number))

    def _check_stable(self, world: World, topics: list[tuple[str, int]]) -> None:
        """Producers have stopped for longer than any time-out: no transaction is open, whatever they left."""
        for topic, count in topics:
            for number in range(count):
                for replica in world.checker.replicas_of(topic, number):
                    stable, committed = replica.last_stable_offset, replica.high_watermark
                    if stable != committed:
                        raise Violation(f"{topic}-{number} is stable up to {stable} at the end, not {committed}")
