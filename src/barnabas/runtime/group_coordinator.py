"""Coordinates the groups of the partitions of ``__consumer_offsets`` that this broker leads, a shard for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.core.group import records as framing
from barnabas.core.group.machine import GroupMachine, Tick, TopicsDeleted
from barnabas.core.group.records import GroupRecord
from barnabas.core.group.turn import GroupPolicy, GroupRequest
from barnabas.core.metadata.delta import MetadataDelta
from barnabas.core.metadata.image import MetadataImage
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import OFFSETS_TOPIC
from barnabas.model.ports import Clock, Random
from barnabas.runtime.partition import Partition
from barnabas.runtime.partitions import LocalPartitions
from barnabas.runtime.shard import Journaled, Shard, Then
from barnabas.storage.producer_state import Origin
from barnabas.wire import batch
from barnabas.wire.records import BatchBuilder, decode_batch
from barnabas.wire.schema import DecodeError

LOAD_BYTES = 8 << 20
TICK_MS = 250
"""How closely sessions and rebalances are timed."""

Report = Callable[..., None]


def java_hash(text: str) -> int:
    """String.hashCode of Java, over UTF-16 code units."""
    units = text.encode("utf-16-be")
    value = 0
    for position in range(0, len(units), 2):
        value = (31 * value + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    return value


def partition_of(group_id: str, partition_count: int) -> int:
    return (java_hash(group_id) & 0x7FFFFFFF) % partition_count


class PartitionJournal:
    """A partition as the log of a shard."""

    def __init__(self, partition: Partition, clock: Clock, on_high_watermark: Callable[[], None]) -> None:
        self._partition = partition
        self._clock = clock
        self._on_high_watermark = on_high_watermark

    @property
    def log_end_offset(self) -> int:
        return self._partition.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self._partition.high_watermark

    def append(self, appended: Sequence[GroupRecord]) -> Journaled:
        now_ms = self._clock.now_ms()
        builder = BatchBuilder()
        for record in appended:
            key, value = framing.encode(record)
            builder.append(now_ms, key, value)
        encoded = memoryview(bytearray(builder.build()))
        told = self._partition.append(encoded, now_ms, Origin.COORDINATOR)
        if told.last_offset >= self._partition.high_watermark:
            self._partition.when_committed(told.last_offset, lambda _: self._on_high_watermark())
        return Journaled(told.last_offset + 1, self._partition.leader_epoch, now_ms)


class GroupShard:
    """One partition of the offsets topic: its machine, loaded from its log."""

    def __init__(self, partition: Partition, policy: GroupPolicy, clock: Clock, random: Random) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self._policy = policy
        self._clock = clock
        self._random = random
        self._is_ticking = False
        self._closed = False
        self._load()

    def _load(self) -> None:
        self.machine = GroupMachine(self._policy, self._random)
        for records in read_records(self.partition):
            self.machine.replay(records, next_offset=0, raft_epoch=0, timestamp_ms=0)
        self.machine.loaded(self._clock.monotonic_ms())
        journal = PartitionJournal(self.partition, self._clock, self._advance)
        self._shard = Shard(self.machine, journal, self._clock, on_failed_append=self._reload)
        self._tick_later()

    def _advance(self) -> None:
        self._shard.advance()

    def _reload(self) -> None:
        """A decision was not recorded: what it changed in memory must go."""
        self._dismiss(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._load()

    def submit(self, request: GroupRequest | TopicsDeleted, then: Then) -> None:
        self._shard.submit(request, then)
        self._tick_later()

    def _tick_later(self) -> None:
        if not self._is_ticking and not self._closed and self.machine.is_live:
            self._is_ticking = True
            self._clock.call_at(self._clock.monotonic_ms() + TICK_MS, self._on_tick)

    def _on_tick(self) -> None:
        self._is_ticking = False
        if not self._closed:
            self.tick()
            self._tick_later()

    def tick(self) -> None:
        self._shard.submit(Tick(self._clock.now_ms()), lambda _: None)

    def close(self) -> None:
        self._closed = True
        self._dismiss(ErrorCode.NOT_COORDINATOR)

    def _dismiss(self, code: ErrorCode) -> None:
        for token, _ in self.machine.dismiss_all(code):
            token(ApiError(code))  # type: ignore[operator]  # tokens are the callbacks of ``submit``
        self._shard.fail(ApiError(code))


def read_records(partition: Partition) -> Sequence[list[GroupRecord]]:
    """What the log holds, batch by batch, oldest first. Records that cannot be read are passed over, as in Kafka."""
    log = partition.log
    offset = log.log_start_offset
    found = []
    while offset < log.log_end_offset:
        result = log.read(offset, LOAD_BYTES)
        if result.records is None:
            break
        content = result.records.read()
        for position, header in batch.iterate(content):
            if not header.is_control:
                found.append(_decoded(content, position))
        offset = result.next_offset
    return found


def _decoded(content: bytes, position: int) -> list[GroupRecord]:
    records = []
    for record in decode_batch(content, position):
        try:
            decoded = framing.decode(record.key, record.value)
        except DecodeError:
            continue
        if decoded is not None:
            records.append(decoded)
    return records


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
            partition = self._partitions.get(OFFSETS_TOPIC, number)
            if number not in self._shards and partition is not None and partition.leader is not None:
                self._shards[number] = GroupShard(partition, self._policy, self._clock, self._random)
        if delta is not None and delta.removed_topics:
            gone = tuple(sorted(removed.name for removed in delta.removed_topics.values()))
            for shard in self._shards.values():
                shard.submit(TopicsDeleted(gone), lambda _: None)

    def _leads(self, number: int, shard: GroupShard) -> bool:
        partition = self._partitions.get(OFFSETS_TOPIC, number)
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
