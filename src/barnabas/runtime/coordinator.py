"""Coordinators: one shard for each partition of an internal topic that this broker leads.

A shard is a decide-and-replay machine (``core.group``, ``core.txn``) over its partition. It is loaded from the log when
the broker becomes leader, and dropped when it is leader no more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from barnabas.core.decision import Tick
from barnabas.core.metadata.image import MetadataImage
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ports import Clock, DiskError, Timer
from barnabas.runtime.coordinator_log import UNREADABLE, Encode, PartitionJournal, Replayed, replay_log
from barnabas.runtime.partition import Partition
from barnabas.runtime.partitions import LocalPartitions
from barnabas.runtime.shard import Machine, Shard, Then
from barnabas.storage.errors import LogOffline

RETRY_MS = 1000
"""Between two checks whether a partition whose flush failed on a full disk is committed."""
OVERDUE_TICK_MS = 250
"""A deadline that a tick could not handle is retried after this time."""

Report = Callable[..., None]


class CoordinatorMachine(Machine, Replayed, Protocol):
    @property
    def next_deadline_ms(self) -> int:
        """``Tick`` is due then."""

    @property
    def is_live(self) -> bool:
        """Whether there are deadlines."""

    def loaded(self, now_ms: int, wall_ms: int) -> Sequence[Any]:
        """The log has been replayed; returns effects to carry out."""

    def dismiss_all(self, code: ErrorCode) -> list[tuple[object, Any]]:
        """The shard ends: replies to all requests that wait in the machine."""


def java_hash(text: str) -> int:
    """String.hashCode of Java, a signed number, over UTF-16 code units."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        value = (31 * value + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    return value - (value >> 31 << 32)


def partition_of(key: str, partition_count: int) -> int:
    """By the hash's absolute value; the one number that has none counts as 0."""
    return abs(java_hash(key)) % (1 << 31) % partition_count


class CoordinatorShard(ABC):
    """One partition of the topic: its machine, loaded from its log.

        LOADING --all below the high watermark is replayed--> serving --leadership lost--> closed
           ^                                                     |
           +--a decision changed memory and was not recorded-----+

    While it loads, requests are answered COORDINATOR_LOAD_IN_PROGRESS; clients ask again.
    """

    encode: Encode

    def __init__(self, partition: Partition, clock: Clock, report: Report) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self._clock = clock
        self._report = report
        self._timer: Timer | None = None
        self._timer_ms = 0
        self._is_watching = False
        self._closed = False
        self._load()

    @abstractmethod
    def _new_machine(self) -> CoordinatorMachine: ...

    def _perform(self, effects: Sequence[Any]) -> None:  # noqa: B027 -- most machines ask for nothing
        """What committed decisions ask to be done outside."""

    # Loading

    def _load(self) -> None:
        """Replays what is committed, in steps. The first step is taken at once: most logs need no second."""
        self.machine = self._new_machine()
        journal = PartitionJournal(self.partition, self._clock, self.encode)
        self._shard = Shard(self.machine, journal, self._clock, on_failed_append=self._reload, on_effects=self._perform)
        self._loaded_log = self.partition.log
        self._steps: Iterator[None] | None = replay_log(self._loaded_log, self.machine)
        self._await_commit(self._steps)

    @property
    def is_loading(self) -> bool:
        return self._steps is not None

    def _await_commit(self, steps: Iterator[None]) -> None:
        """Waits until all that the former leader appended is committed: a failover could undo the rest."""
        end_offset = self.partition.log.log_end_offset
        if end_offset <= self.partition.high_watermark:
            self._step(steps)
            return

        def outcome(code: ErrorCode) -> None:
            if self._closed or self._steps is not steps:
                return
            if code is ErrorCode.NONE:
                self._step(steps)
            else:
                self._clock.call_at(self._clock.monotonic_ms() + RETRY_MS, lambda: self._await_commit(steps))

        self.partition.when_committed(end_offset - 1, outcome)

    def _step(self, steps: Iterator[None]) -> None:
        if self._closed or self._steps is not steps:
            return
        try:
            next(steps)
        except StopIteration:
            self._serve()
        except (DiskError, LogOffline, *UNREADABLE) as problem:
            if self.partition.log is not self._loaded_log:
                self._load()  # the replica has been moved to another data folder
            else:
                self._refuse(problem)
        else:
            self._clock.call_at(self._clock.monotonic_ms(), lambda: self._step(steps))

    def _serve(self) -> None:
        self._steps = None
        effects = self.machine.loaded(self._clock.monotonic_ms(), self._clock.now_ms())
        self._tick_later()
        if effects:
            self._perform(effects)

    def _refuse(self, problem: Exception) -> None:
        """A log that cannot be read, or is damaged, is not served: NOT_COORDINATOR is answered, as in Kafka.

        Half of its records would be worse than none. A committed offset that is missing, for one, sends its group back
        to an earlier one, or to where auto.offset.reset says.
        """
        self._report("a coordinator cannot be loaded", partition=str(self.partition.name), reason=str(problem))
        self.machine = self._new_machine()
        self._shard.fail(ApiError(ErrorCode.NOT_COORDINATOR, str(problem)))
        self._serve()

    # Serving

    def _watch(self) -> None:
        """Replies that wait are released, or refused, when the outcome of what is appended so far is known."""
        if self._is_watching or not self._shard.is_waiting:
            return
        if self.partition.leader is None:
            self._shard.refuse_waiting(ApiError(ErrorCode.NOT_COORDINATOR))
            return
        self._is_watching = True
        self.partition.when_committed(self.partition.log.log_end_offset - 1, self._on_outcome)

    def _on_outcome(self, code: ErrorCode) -> None:
        """An error is a flush that failed on a full disk, or a partition that this broker no longer leads."""
        self._is_watching = False
        if code is ErrorCode.NONE:
            self._shard.advance()
        else:
            self._shard.refuse_waiting(ApiError(code))
        self._watch()

    def _reload(self) -> None:
        """A decision was not recorded: what it changed in memory must go."""
        self._dismiss(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._load()

    def submit(self, request: object, then: Then) -> None:
        if self._steps is not None:
            then(ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            return
        self._shard.submit(request, then)
        self._watch()
        self._tick_later()

    def _tick_later(self) -> None:
        """Sets the timer to the next deadline of the machine."""
        due_ms = self.machine.next_deadline_ms
        if self._timer is not None:
            if self._timer_ms <= due_ms:
                return
            self._timer.cancel()
        self._timer = None
        if not self._closed and self.machine.is_live:
            now_ms = self._clock.monotonic_ms()
            self._timer_ms = due_ms if due_ms > now_ms else now_ms + OVERDUE_TICK_MS
            self._timer = self._clock.call_at(self._timer_ms, self._on_tick)

    def _on_tick(self) -> None:
        self._timer = None
        if not self._closed:
            self.tick()

    def tick(self) -> None:
        self.submit(Tick(self._clock.now_ms()), lambda _: None)

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._dismiss(ErrorCode.NOT_COORDINATOR)

    def _dismiss(self, code: ErrorCode) -> None:
        for token, _ in self.machine.dismiss_all(code):
            token(ApiError(code))  # type: ignore[operator]  # tokens are the callbacks of ``submit``
        self._shard.fail(ApiError(code))


S = TypeVar("S", bound=CoordinatorShard)


class Coordinator(Generic[S]):
    """The shards of one internal topic on this broker."""

    topic: str

    def __init__(self, *, partitions: LocalPartitions, make_shard: Callable[[Partition], S]) -> None:
        self._partitions = partitions
        self._make_shard = make_shard
        self._shards: dict[int, S] = {}
        self._partition_count = 0

    def apply(self, image: MetadataImage) -> None:
        """After the partitions have applied the image."""
        topic = image.topics.get(self.topic)
        self._partition_count = len(topic.partitions) if topic is not None else 0
        for number in [n for n, shard in self._shards.items() if not self._leads(n, shard)]:
            self._shards.pop(number).close()
        for number in range(self._partition_count):
            partition = self._partition(number)
            if number not in self._shards and partition is not None and partition.leader is not None:
                self._shards[number] = self._make_shard(partition)

    def _partition(self, number: int) -> Partition | None:
        try:
            return self._partitions.get(self.topic, number)
        except ApiError:
            return None  # its log cannot be opened, which is reported there

    def _leads(self, number: int, shard: S) -> bool:
        partition = self._partition(number)
        return (
            partition is shard.partition
            and partition.leader_epoch == shard.leader_epoch
            and partition.leader is not None
        )

    @property
    def is_ready(self) -> bool:
        return self._partition_count > 0

    def partition_of(self, key: str) -> int:
        return partition_of(key, self._partition_count)

    def shard_of(self, key: str) -> S:
        """Raises ApiError where this broker does not coordinate the key."""
        if not self._partition_count:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self.shard(self.partition_of(key))

    def shard(self, number: int) -> S:
        """Of a partition of the topic. Raises ApiError."""
        shard = self._shards.get(number)
        if shard is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        return shard

    def submit(self, key: str, request: object, then: Then) -> None:
        try:
            shard = self.shard_of(key)
        except ApiError as problem:
            then(problem)
        else:
            shard.submit(request, then)

    def submit_to_all(self, request: object, then: Callable[[list[object]], None]) -> None:
        """Asks every shard; ``then`` gets all answers."""
        waiting = len(self._shards)
        answers: list[object] = []
        if not waiting:
            then([])

        def answered(response: object) -> None:
            answers.append(response)
            if len(answers) == waiting:
                then(answers)

        for shard in list(self._shards.values()):
            shard.submit(request, answered)

    def upkeep(self) -> None:
        """Lets shards without deadlines look for what has expired too."""
        for shard in self._shards.values():
            shard.tick()

    def close(self) -> None:
        for shard in self._shards.values():
            shard.close()
        self._shards.clear()
