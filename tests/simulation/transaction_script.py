"""Transactions that a schedule drives request by request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from barnabas.model.errors import ErrorCode
from barnabas.model.ids import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.sim.check import bytes_of
from barnabas.sim.client import Place
from barnabas.sim.committed import READ_COMMITTED, filter_aborted
from barnabas.sim.coordinated import RETRIED, TRANSACTION
from barnabas.sim.history import Violation
from barnabas.sim.network import Hold
from barnabas.sim.schedule import Answer, Schedule
from barnabas.sim.transaction_history import Outcome, Transaction, TransactionHistory, committed_log
from barnabas.sim.transactional_client import DIALECTS, FENCED, Dialect
from barnabas.wire.api import fetch, offset_fetch, produce
from barnabas.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas.wire.api.create_topics import CreatableTopic, CreatableTopicConfig
from barnabas.wire.api.end_txn import EndTxnRequest
from barnabas.wire.api.find_coordinator import FindCoordinatorRequest
from barnabas.wire.api.init_producer_id import InitProducerIdRequest
from barnabas.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.wire.records import Record, encode_batch
from barnabas.wire.schema import Message

LEFT, RIGHT = ("left", 0), ("right", 0)
GROUP = "copiers"
FIRST, SECOND = DIALECTS[1], DIALECTS[-1]
"""Clients of transaction version 1 and 2."""
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "offsets.topic.num.partitions": "1",
}


class TransactionSchedule(Schedule):
    """Three nodes: one coordinates, the others lead ``left`` and ``right``."""

    def __init__(self, seed: int, *, segment_ms: int = 604_800_000, checkpoint_ms: int = 60_000) -> None:
        """``checkpoint_ms`` is the time between two checkpoints of recovery points."""
        self._segment_ms = segment_ms
        super().__init__(seed, 3, settings={**SETTINGS, "log.flush.offset.checkpoint.interval.ms": str(checkpoint_ms)})
        self.book = TransactionHistory()
        self.find(TRANSACTION, "t0")
        self.find(0, GROUP)
        self.until(lambda: self.coordinator >= 0 and self.group_coordinator >= 0, "there are coordinators")
        others = [node_id for node_id in self.nodes if node_id != self.coordinator]
        for (topic, _), first, second in ((LEFT, *others[:2]), (RIGHT, *others[1::-1])):
            self.create_topic(topic, [first, second, self.coordinator])
            self.topics.append((topic, 1))
        self.until(self.has_topics, "there are the topics")
        self.until(
            lambda: self.leader_of(*LEFT) == others[0] and self.leader_of(*RIGHT) == others[1], "they have leaders"
        )

    def creatable(self, name: str, count: int) -> CreatableTopic:
        topic = super().creatable(name, count)
        topic.configs = [
            CreatableTopicConfig("retention.ms", "-1"),
            CreatableTopicConfig("segment.ms", str(self._segment_ms)),
        ]
        return topic

    def find(self, key_type: int, key: str) -> None:
        """Creates the coordinator's topic."""
        answer = self.ask(FindCoordinatorRequest(key=key, key_type=key_type), 3, self.controller)
        self.until(lambda: answer.has_ended, "the coordinator is asked for")

    # What is

    def leader_of(self, topic: str, number: int = 0) -> int:
        found = self.image().topics.get(topic)
        return -1 if found is None else int(found.partitions[number].leader)

    @property
    def coordinator(self) -> int:
        return self.leader_of(TRANSACTIONS_TOPIC)

    @property
    def group_coordinator(self) -> int:
        return self.leader_of(OFFSETS_TOPIC)

    def replica_of(self, node_id: int, topic: str) -> Any:
        node = self.nodes[node_id].node
        return None if node is None else node.broker.partitions.get(topic, 0)

    def is_stable(self, place: Place) -> bool:
        """All that its leader has committed is decided."""
        leader = self.leader_of(*place)
        replica = None if leader < 0 else self.replica_of(leader, place[0])
        return replica is not None and replica.last_stable_offset == replica.log_end_offset

    # Requests

    def ask_until_final(
        self, node: Callable[[], int], request: Message, version: int, codes: Callable[[Any], Iterable[int]]
    ) -> tuple[Any, ErrorCode]:
        """Tries again as a client does."""
        for _ in range(200):
            answer = self.ask(request, version, max(1, node()))
            self.until(lambda: answer.has_ended, f"{type(request).__name__} is answered")  # noqa: B023
            found = (
                [ErrorCode.REQUEST_TIMED_OUT]
                if answer.response is None
                else list(map(ErrorCode, codes(answer.response)))
            )
            code = max(found)
            if code not in RETRIED:
                return answer.response, code
            self.wait(100)
        raise Violation(self.explain(f"a client tries {type(request).__name__} in vain"))

    def read_committed(self, place: Place) -> list[str]:
        """What a consumer reads from its beginning up to the last stable offset, at the leader."""
        found: dict[int, bytes] = {}
        offset = 0
        for _ in range(100):
            data = self._fetch(place, offset)
            values, end = filter_aborted(bytes(data.records or b""), data.aborted_transactions or (), offset)
            self.explained(partial(self.book.read_range, "a consumer", place, offset, end, values))
            found |= values
            offset = end
            if offset >= data.last_stable_offset:
                return [value.decode() for value in found.values()]
        raise Violation(self.explain(f"{place} cannot be read from {offset} on"))

    def _fetch(self, place: Place, offset: int) -> Any:
        partition = fetch.FetchPartition(place[1], fetch_offset=offset, partition_max_bytes=1 << 20)
        request = fetch.FetchRequest(
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=READ_COMMITTED,
            topics=[fetch.FetchTopic(place[0], partitions=[partition])],
        )
        response, code = self.ask_until_final(
            lambda: self.leader_of(*place), request, 11, lambda r: [r.responses[0].partitions[0].error_code]
        )
        self.expect(code is ErrorCode.NONE, f"the fetch is answered, not {code.name}")
        return response.responses[0].partitions[0]

    def group_offset(self, place: Place, *, is_stable: bool = True) -> int:
        topics = [offset_fetch.OffsetFetchRequestTopic(place[0], [place[1]])]
        request = offset_fetch.OffsetFetchRequest(GROUP, topics=topics, require_stable=is_stable)
        response, code = self.ask_until_final(
            lambda: self.group_coordinator,
            request,
            7,
            lambda r: [r.error_code, *(each.error_code for topic in r.topics for each in topic.partitions)],
        )
        self.expect(code is ErrorCode.NONE, f"the offset is fetched, not {code.name}")
        offset = int(response.topics[0].partitions[0].committed_offset)
        self.book.fetch_offset((GROUP, *place), offset, self.book.committed_so_far((GROUP, *place)))
        return offset

    # The end

    def finish(self) -> None:
        super().finish()
        logs = {}
        for place in (LEFT, RIGHT):
            for replica in self.checker.replicas_of(*place):
                log = committed_log(bytes_of(replica))
                self.expect(not log.open_producers, f"every transaction in {place} has a marker")
                self.expect(replica.last_stable_offset == replica.high_watermark, f"{place} is stable to its end")
                logs[place] = log.records
            found = self.read_committed(place)
            self.expect(found == [value.decode() for value in logs[place].values()], f"{found} is what {place} holds")
        self.explained(lambda: self.book.check(logs))


class Script:
    """An instance of a transactional id."""

    def __init__(
        self, schedule: TransactionSchedule, dialect: Dialect, number: int = 1, timeout_ms: int = 60_000
    ) -> None:
        self.schedule = schedule
        self.dialect = dialect
        self.timeout_ms = timeout_ms
        self.number = number
        self.producer_id, self.producer_epoch = -1, -1
        self.transaction = Transaction("none")
        self._begun = 0
        self._sequences: dict[Place, int] = {}
        self._added: set[Place] = set()

    def _coordinator(self) -> int:
        return self.schedule.coordinator

    def init(self) -> Script:
        request = InitProducerIdRequest("t0", self.timeout_ms)
        response, code = self.schedule.ask_until_final(
            self._coordinator, request, self.dialect.init, lambda r: [r.error_code]
        )
        self.schedule.expect(code is ErrorCode.NONE, f"it gets a producer id, not {code.name}")
        self._own(response)
        return self

    def _own(self, response: Any) -> None:
        self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
        self._sequences.clear()
        self.schedule.history.grant(self.producer_id, self.producer_epoch, f"{self.number}/{self._begun}")

    def begin(self) -> Script:
        self._begun += 1
        self._added.clear()
        self.transaction = self.schedule.book.begin(f"t0.{self.number}/{self._begun}")
        return self

    # Records

    def write(self, place: Place, count: int = 1) -> ErrorCode:
        if not self.dialect.bumps and place not in self._added:
            code = self.add(place)
            if code is not ErrorCode.NONE:
                return code
        values = self.transaction.write(place, [None] * count)
        request = self.batch(place, values)
        return self.schedule.ask_until_final(
            lambda: self.schedule.leader_of(*place), request, self.dialect.produce, produced_codes
        )[1]

    def add(self, place: Place) -> ErrorCode:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t0",
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(place[0], [place[1]])],
        )
        self._added.add(place)
        return self.schedule.ask_until_final(
            self._coordinator,
            request,
            3,
            lambda r: [r.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code],
        )[1]

    def batch(self, place: Place, values: list[bytes]) -> produce.ProduceRequest:
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + len(values)
        batch = encode_batch(
            [Record(-1, 1_000_000, b"key", value) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = produce.TopicProduceData(place[0], partition_data=[produce.PartitionProduceData(place[1], batch)])
        return produce.ProduceRequest("t0", -1, 2000, [data])

    def write_late(self, place: Place) -> tuple[Answer, Hold]:
        """A Produce request that waits on its way until the hold is released."""
        request = self.batch(place, self.transaction.write(place, [None]))
        schedule, leader = self.schedule, self.schedule.leader_of(*place)
        hold = Hold(request.api_key, None, schedule.nodes[leader].host)
        schedule.links.hold(hold)
        return schedule.ask(request, self.dialect.produce, leader), hold

    # Offsets

    def add_offsets(self) -> ErrorCode:
        request = AddOffsetsToTxnRequest("t0", self.producer_id, self.producer_epoch, GROUP)
        return self.schedule.ask_until_final(self._coordinator, request, 3, lambda r: [r.error_code])[1]

    def commit_offset(self, place: Place, offset: int) -> ErrorCode:
        self.transaction.offsets[GROUP, *place] = offset
        partition = TxnOffsetCommitRequestPartition(place[1], offset)
        topics = [TxnOffsetCommitRequestTopic(place[0], partitions=[partition])]
        request = TxnOffsetCommitRequest("t0", GROUP, self.producer_id, self.producer_epoch, topics=topics)
        return self.schedule.ask_until_final(
            lambda: self.schedule.group_coordinator,
            request,
            self.dialect.offsets,
            lambda r: [r.topics[0].partitions[0].error_code],
        )[1]

    # The end

    def ask_end(self, *, committed: bool) -> Answer:
        """Once; what becomes of it stays unknown."""
        self.transaction.outcome = Outcome.UNKNOWN if committed else Outcome.ABORTED
        request = EndTxnRequest("t0", self.producer_id, self.producer_epoch, committed)
        return self.schedule.ask(request, self.dialect.end, self.schedule.coordinator)

    def end(self, *, committed: bool) -> ErrorCode:
        before = self.transaction.outcome
        self.transaction.outcome = Outcome.UNKNOWN if committed else Outcome.ABORTED
        request = EndTxnRequest("t0", self.producer_id, self.producer_epoch, committed)
        response, code = self.schedule.ask_until_final(
            self._coordinator, request, self.dialect.end, lambda r: [r.error_code]
        )
        if code is ErrorCode.NONE:
            self.schedule.book.end(self.transaction, Outcome.COMMITTED if committed else Outcome.ABORTED)
            if self.dialect.bumps:
                self._own(response)
        elif code in FENCED and before is Outcome.OPEN:
            self.transaction.outcome = Outcome.ABORTED
        return code

    def expect(self, code: ErrorCode, what: str) -> None:
        self.schedule.expect(code is ErrorCode.NONE, f"{what}, not {code.name}")

    def expect_refused(self, code: ErrorCode, what: str) -> None:
        self.schedule.expect(code in FENCED, f"{what} is refused, not {code.name}")


def produced_codes(response: Any) -> list[int]:
    return [response.responses[0].partition_responses[0].error_code]
