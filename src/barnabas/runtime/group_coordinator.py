"""The group coordinator: one shard for each partition of ``__consumer_offsets`` that this broker leads."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from barnabas.core.group.machine import GroupMachine, Tick, TopicsDeleted
from barnabas.core.group.turn import GroupPolicy, GroupRequest
from barnabas.core.metadata.delta import MetadataDelta
from barnabas.core.metadata.image import MetadataImage
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import OFFSETS_TOPIC
from barnabas.model.ports import Clock, DiskError, Random, Timer
from barnabas.runtime.group_log import UNREADABLE, PartitionJournal, replay_log
from barnabas.runtime.partition import Partition
from barnabas.runtime.partitions import LocalPartitions
from barnabas.runtime.shard import Shard, Then
from barnabas.storage.errors import LogOffline

RETRY_MS = 1000
"""Between two checks whether a partition whose flush failed on a full disk is committed."""
OVERDUE_TICK_MS = 250
"""A deadline that a tick could not handle is retried after this time."""

Report = Callable[..., None]


def java_hash(text: str) -> int:
    """String.hashCode of Java, a signed number, over UTF-16 code units."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        value = (31 * value + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    return value - (value >> 31 << 32)


def partition_of(group_id: str, partition_count: int) -> int:
    """By the hash's absolute value; the one number that has none counts as 0."""
    return abs(java_hash(group_id)) % (1 << 31) % partition_count


class GroupShard:
    """One partition of the offsets topic: its machine, loaded from its log.

        LOADING --all below the high watermark is replayed--> serving --leadership lost--> closed
           ^                                                     |
           +--a decision changed memory and was not recorded-----+

    While it loads, requests are answered COORDINATOR_LOAD_IN_PROGRESS; clients ask again.
    """

    def __init__(self, partition: Partition, policy: GroupPolicy, clock: Clock, random: Random, report: Report) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self._policy = policy
        self._clock = clock
        self._random = random
        self._report = report
        self._timer: Timer | None = None
        self._timer_ms = 0
        self._is_watching = False
        self._closed = False
        self._load()

    # Loading

    def _load(self) -> None:
        """Replays what is committed, in steps. The first step is taken at once: most logs need no second."""
        self.machine = GroupMachine(self._policy, self._random)
        journal = PartitionJournal(self.partition, self._clock)
        self._shard = Shard(self.machine, journal, self._clock, on_failed_append=self._reload)
        self._deleted_meanwhile: list[TopicsDeleted] = []
        self._loaded_log = self.partition.log
        self._steps: Iterator[None] | None = replay_log(self._loaded_log, self.machine)
        self._await_commit(self._steps)

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
        self.machine.loaded(self._clock.monotonic_ms(), self._clock.now_ms())
        self._tick_later()
        for deleted in self._deleted_meanwhile:
            self.submit(deleted, lambda _: None)

    def _refuse(self, problem: Exception) -> None:
        """A log that cannot be read, or is damaged, is not served: its groups get NOT_COORDINATOR, as in Kafka.

        Half of its records would be worse than none. A committed offset that is missing sends its group back to an
        earlier one, or to where auto.offset.reset says.
        """
        self._report("groups cannot be loaded", partition=str(self.partition.name), reason=str(problem))
        self.machine = GroupMachine(self._policy, self._random)
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

    def submit(self, request: GroupRequest | TopicsDeleted | Tick, then: Then) -> None:
        if self._steps is not None:
            if isinstance(request, TopicsDeleted):
                self._deleted_meanwhile.append(request)
            then(ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            return
        self._shard.submit(request, then)
        self._watch()
        self._tick_later()

    def _tick_later(self) -> None:
        """Sets the timer to the next deadline of a session or rebalance."""
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


class GroupCoordinator:
    def __init__(
        self, *, partitions: LocalPartitions, policy: GroupPolicy, clock: Clock, random: Random, report: Report
    ) -> None:
        self._partitions = partitions
        self._policy = policy
        self._clock = clock
        self._random = random
        self._report = report
        self._shards: dict[int, GroupShard] = {}
        self._partition_count = 0

    def apply(self, delta: MetadataDelta | None, image: MetadataImage) -> None:
        """After the partitions have applied the image."""
        topic = image.topics.get(OFFSETS_TOPIC)
        self._partition_count = len(topic.partitions) if topic is not None else 0
        for number in [n for n, shard in self._shards.items() if not self._leads(n, shard)]:
            self._shards.pop(number).close()
        for number in range(self._partition_count):
            partition = self._partition(number)
            if number not in self._shards and partition is not None and partition.leader is not None:
                self._shards[number] = GroupShard(partition, self._policy, self._clock, self._random, self._report)
        if delta is not None and delta.removed_topics:
            gone = tuple(sorted((removed.name, removed.topic_id) for removed in delta.removed_topics.values()))
            for shard in self._shards.values():
                shard.submit(TopicsDeleted(gone), lambda _: None)

    def _partition(self, number: int) -> Partition | None:
        try:
            return self._partitions.get(OFFSETS_TOPIC, number)
        except ApiError:
            return None  # its log cannot be opened, which is reported there

    def _leads(self, number: int, shard: GroupShard) -> bool:
        partition = self._partition(number)
        return (
            partition is shard.partition
            and partition.leader_epoch == shard.leader_epoch
            and partition.leader is not None
        )

    @property
    def is_ready(self) -> bool:
        return self._partition_count > 0

    def partition_of(self, group_id: str) -> int:
        return partition_of(group_id, self._partition_count)

    def submit(self, group_id: str, request: GroupRequest, then: Then) -> None:
        if not self._partition_count:
            then(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        shard = self._shards.get(self.partition_of(group_id))
        if shard is None:
            then(ApiError(ErrorCode.NOT_COORDINATOR))
        else:
            shard.submit(request, then)

    def submit_to_all(self, request: GroupRequest, then: Callable[[list[object]], None]) -> None:
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
        """Lets shards without live groups look for expired offsets too."""
        for shard in self._shards.values():
            shard.tick()

    def close(self) -> None:
        for shard in self._shards.values():
            shard.close()
        self._shards.clear()
