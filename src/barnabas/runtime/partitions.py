"""The local partitions: created, led, reconfigured and deleted as the metadata image changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from barnabas.core.metadata.configs import topic_settings
from barnabas.core.metadata.delta import MetadataDelta
from barnabas.core.metadata.image import (
    BROKER_RESOURCE,
    EMPTY_IMAGE,
    TOPIC_RESOURCE,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.model.ports import Clock, Disk, DiskError, Random
from barnabas.model.topic_settings import TopicSettings
from barnabas.runtime.partition import MAX_LAG_MS, Partition
from barnabas.runtime.replication import Replication
from barnabas.storage.errors import LogOffline
from barnabas.storage.log_manager import LogManager

Report = Callable[..., None]


class LocalPartitions:
    def __init__(
        self,
        *,
        node_id: int,
        logs: LogManager,
        disk: Disk,
        clock: Clock,
        random: Random,
        static_settings: Mapping[str, str],
        effective: Callable[[TopicSettings], TopicSettings],
        report: Report,
        max_lag_ms: int = MAX_LAG_MS,
        replication: Replication | None = None,
        on_placed: Callable[[Partition, PartitionImage], None] = lambda _partition, _state: None,
    ) -> None:
        """``on_placed`` gets each local replica whose metadata is applied, and those of a folder that fails."""
        self._node_id = node_id
        self._logs = logs
        self._disk = disk
        self._clock = clock
        self._random = random
        self._static = static_settings
        self._effective = effective
        """What the node itself imposes on every topic's settings."""
        self._report = report
        self._max_lag_ms = max_lag_ms
        self._replication = replication
        """None for a node that is its own cluster for good."""
        self._on_placed = on_placed
        self._by_topic: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[bytes, dict[int, Partition]] = {}
        self._image = EMPTY_IMAGE
        self.stood_down: dict[Partition, None] = {}
        """Led by this broker as far as the metadata says, and not served (``runtime.leader_lease``)."""
        self._unopened: dict[tuple[bytes, int], bool] = {}
        """(topic id, partition) whose log could not be opened (a full disk, mostly): tried again when asked for.

        True for those that are new here: there is no log in a folder that is offline."""

    # Looking up

    def get(self, topic: str, number: int) -> Partition | None:
        """Raises ApiError (KAFKA_STORAGE_ERROR) where there is such a partition and its log cannot be opened."""
        partitions = self._by_topic.get(topic)
        found = None if partitions is None else partitions.get(number)
        return self._open_again(self._image.topics.get(topic), number) if found is None else found

    def get_by_id(self, topic_id: bytes, number: int) -> Partition | None:
        """As ``get``."""
        partitions = self._by_id.get(topic_id)
        found = None if partitions is None else partitions.get(number)
        return self._open_again(self._image.topics_by_id.get(topic_id), number) if found is None else found

    def _open_again(self, topic: TopicImage | None, number: int) -> Partition | None:
        is_new = None if topic is None else self._unopened.get((topic.topic_id, number))
        if topic is None or is_new is None:
            return None
        partition = self._open(topic, number, self.settings_of(self._image, topic.name), is_new=is_new)
        if partition is None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {topic.name}-{number} cannot be opened")
        self._apply_state(partition, topic.partitions[number])
        return partition

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._by_topic.values():
            yield from partitions.values()

    def high_watermarks(self) -> dict[TopicPartition, int]:
        return {partition.name: partition.high_watermark for partition in self}

    def when_all_committed(self, then: Callable[[], None]) -> None:
        """Calls ``then`` when all that has been appended so far is committed, or will not be."""
        waiting = [part for part in self if part.leader is not None and part.log.log_end_offset > part.high_watermark]
        left = len(waiting)

        def one_less(_: ErrorCode) -> None:
            nonlocal left
            left -= 1
            if not left:
                then()

        if not waiting:
            then()
        for partition in waiting:
            partition.when_committed(partition.log.log_end_offset - 1, one_less)

    def state_of(self, partition: Partition) -> PartitionImage | None:
        """What the metadata says of it."""
        states = _partitions_of(self._image, partition)
        number = partition.name.partition
        return states[number] if number < len(states) else None

    def settings_of(self, image: MetadataImage, topic: str) -> TopicSettings:
        return self._effective(topic_settings(image, topic, self._node_id, self._static))

    # Applying images

    def apply(self, delta: MetadataDelta | None, image: MetadataImage) -> None:
        """``delta`` is None for the first image, which is applied as a whole."""
        before, self._image = self._image, image
        if delta is None:
            self._set_strays_aside(image)
            self._report_missing(image)
            changed = list(image.topics.values())
        else:
            for topic in delta.removed_topics.values():
                self._remove_topic(topic)
            found = (image.topics_by_id.get(topic_id) for topic_id in sorted(delta.changed_topics))
            changed = [topic for topic in found if topic is not None]
            self._apply_settings(delta, image)
        for topic in changed:
            self._apply_topic(topic, image, None if delta is None else _partitions_of(before, topic))
        if delta is not None and delta.removed_topics:
            self._logs.checkpoint(self.high_watermarks())

    def _report_missing(self, image: MetadataImage) -> None:
        """At a start every partition has its log, unless a crash came between its creation and its first record."""
        missing = [
            f"{topic.name}-{number}"
            for topic in image.topics.values()
            for number, state in enumerate(topic.partitions)
            if self._node_id in state.replicas and self._logs.get(TopicPartition(topic.name, number)) is None
        ]
        if missing:
            self._report("partitions without a log begin at offset 0", count=len(missing), first=missing[0])

    def _apply_topic(self, topic: TopicImage, image: MetadataImage, before: tuple[PartitionImage, ...] | None) -> None:
        """``before`` is None at a start: what was there before is not known."""
        settings: TopicSettings | None = None
        for number, state in enumerate(topic.partitions):
            partition = self._by_id.get(topic.topic_id, {}).get(number)
            if self._node_id not in state.replicas:
                self._unopened.pop((topic.topic_id, number), None)
                if partition is not None:
                    self._remove(topic, partition)
                continue
            if partition is None:
                settings = settings or self.settings_of(image, topic.name)
                was_here = before is None or (number < len(before) and self._node_id in before[number].replicas)
                partition = self._open(topic, number, settings, is_new=not was_here)
                if partition is None:
                    continue
            self._apply_state(partition, state)

    def _apply_state(self, partition: Partition, state: PartitionImage) -> None:
        self._on_placed(partition, state)
        if partition.log.offline is None:
            self._apply_leadership(partition, state)

    def _apply_leadership(self, partition: Partition, state: PartitionImage) -> None:
        if state.leader == self._node_id:
            if partition in self.stood_down:
                return
            try:
                partition.lead(state.leader_epoch, state.partition_epoch, state.replicas, state.in_sync_replicas)
            except (DiskError, LogOffline) as problem:
                self._report("a partition cannot be led", partition=str(partition.name), reason=str(problem))
                return
            if self._replication is not None:
                self._replication.lead(partition)
        elif partition.follow(state.leader, state.leader_epoch, state.replicas) and self._replication is not None:
            self.stood_down.pop(partition, None)
            self._replication.follow(partition, state.leader)

    # Standing down

    @property
    def led_with_others(self) -> list[Partition]:
        """Partitions led here that another broker could lead."""
        return [] if self._replication is None else list(self._replication.led)

    def stand_down(self, partitions: list[Partition]) -> None:
        for partition in partitions:
            self._forget(partition)
            self.stood_down[partition] = None
            partition.stand_down()

    def lead_again(self) -> None:
        """Where the metadata still says so."""
        waiting, self.stood_down = self.stood_down, {}
        for partition in waiting:
            topic = self._image.topics_by_id.get(partition.topic_id)
            if topic is not None and partition is self._by_id[partition.topic_id].get(partition.name.partition):
                self._apply_leadership(partition, topic.partitions[partition.name.partition])

    def _open(self, topic: TopicImage, number: int, settings: TopicSettings, *, is_new: bool) -> Partition | None:
        name = TopicPartition(topic.name, number)
        try:
            log = self._logs.get(name)
            if log is None:
                log = self._logs.create(
                    name,
                    topic.topic_id,
                    settings,
                    now_ms=self._clock.now_ms(),
                    directory_id=topic.partitions[number].directory_of(self._node_id),
                    is_new=is_new,
                )
            else:
                self._logs.adopt(log, topic.topic_id)
                if log.settings != settings:
                    log.update_settings(settings)
        except (DiskError, LogOffline) as problem:
            if (topic.topic_id, number) not in self._unopened:
                self._report("a partition's log cannot be opened", partition=str(name), reason=str(problem))
            self._unopened.setdefault((topic.topic_id, number), is_new)
            return None
        self._unopened.pop((topic.topic_id, number), None)
        partition = Partition(
            log=log,
            topic_id=topic.topic_id,
            node_id=self._node_id,
            disk=self._disk,
            clock=self._clock,
            high_watermark=self._logs.checkpointed_high_watermark(name),
            max_lag_ms=self._max_lag_ms,
            **({} if self._replication is None else {"on_proposal": self._replication.propose}),
        )
        self._by_topic.setdefault(topic.name, {})[number] = partition
        self._by_id.setdefault(topic.topic_id, {})[number] = partition
        return partition

    def _apply_settings(self, delta: MetadataDelta, image: MetadataImage) -> None:
        everyone = any(resource_type == BROKER_RESOURCE for resource_type, _ in delta.changed_configs)
        for topic, partitions in self._by_topic.items():
            if topic in image.topics and (everyone or (TOPIC_RESOURCE, topic) in delta.changed_configs):
                settings = self.settings_of(image, topic)
                for partition in partitions.values():
                    partition.update_settings(settings)

    def stop_offline(self) -> None:
        """A folder has failed: its partitions are not served until the broker is started again."""
        for partition in list(self):
            if partition.log.offline is not None:
                partition.stop(ErrorCode.KAFKA_STORAGE_ERROR)
                self._forget(partition)
                state = self.state_of(partition)
                if state is not None:
                    self._on_placed(partition, state)

    # Removing

    def _remove_topic(self, topic: TopicImage) -> None:
        for number in range(len(topic.partitions)):
            self._unopened.pop((topic.topic_id, number), None)
        partitions = self._by_id.pop(topic.topic_id, {})
        named = self._by_topic.get(topic.name)
        if named is not None and all(partition.topic_id == topic.topic_id for partition in named.values()):
            del self._by_topic[topic.name]
        for partition in partitions.values():
            self._forget(partition)
            partition.stop(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            self._delete_log(partition.name)

    def _remove(self, topic: TopicImage, partition: Partition) -> None:
        """The replica has been moved to another broker."""
        number = partition.name.partition
        self._by_id[topic.topic_id].pop(number, None)
        self._by_topic[topic.name].pop(number, None)
        self._forget(partition)
        partition.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._report("a replica is removed: it has been reassigned", partition=str(partition.name))
        self._delete_log(partition.name)

    def _forget(self, partition: Partition) -> None:
        self.stood_down.pop(partition, None)
        if self._replication is not None:
            self._replication.forget(partition)

    def _set_strays_aside(self, image: MetadataImage) -> None:
        """Logs of no topic or replica: deleted or moved while this broker was down, or the metadata was lost."""
        for name, topic_id in [(log.partition, log.topic_id) for log in self._logs]:
            topic = image.topics.get(name.topic)
            if (
                topic is None
                or topic_id not in (None, topic.topic_id)
                or name.partition >= len(topic.partitions)
                or self._node_id not in topic.partitions[name.partition].replicas
            ):
                self._set_aside(name)

    def _set_aside(self, name: TopicPartition) -> None:
        log = self._logs.get(name)
        if log is not None and log.log_end_offset == log.log_start_offset:
            self._delete_log(name)
            return
        try:
            folder = self._logs.set_aside(name, self._random.randbytes(16))
        except (DiskError, LogOffline) as problem:
            self._report("a partition that no topic has stays", partition=str(name), reason=str(problem))
        else:
            self._report("no topic has this partition: its folder is set aside", partition=str(name), folder=folder)

    def _delete_log(self, name: TopicPartition) -> None:
        try:
            self._logs.delete(name, self._random.randbytes(16), self._clock.now_ms())
        except (DiskError, LogOffline) as problem:
            self._report("a deleted partition's folder stays", partition=str(name), reason=str(problem))


def _partitions_of(image: MetadataImage, of: TopicImage | Partition) -> tuple[PartitionImage, ...]:
    topic = image.topics_by_id.get(of.topic_id)
    return () if topic is None else topic.partitions
