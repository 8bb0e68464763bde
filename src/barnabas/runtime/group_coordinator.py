"""The group coordinator: the shards of ``__consumer_offsets``."""

from __future__ import annotations

from barnabas.core.decision import Tick
from barnabas.core.group import records as framing
from barnabas.core.group.machine import GroupMachine, TopicsDeleted
from barnabas.core.group.turn import GroupPolicy, GroupRequest
from barnabas.core.metadata.delta import MetadataDelta
from barnabas.core.txn.marker import EndMarker
from barnabas.model.ids import OFFSETS_TOPIC
from barnabas.model.ports import Clock, Random
from barnabas.runtime.coordinator import Coordinator, CoordinatorShard, Report
from barnabas.runtime.partition import Partition
from barnabas.runtime.partitions import LocalPartitions
from barnabas.runtime.shard import Then


class GroupShard(CoordinatorShard):
    machine: GroupMachine
    encode = staticmethod(framing.encode)

    def __init__(self, partition: Partition, policy: GroupPolicy, clock: Clock, random: Random, report: Report) -> None:
        self._policy = policy
        self._random = random
        self._deleted_meanwhile: list[TopicsDeleted] = []
        super().__init__(partition, clock, report)

    def _new_machine(self) -> GroupMachine:
        return GroupMachine(self._policy, self._random)

    def submit(self, request: GroupRequest | TopicsDeleted | EndMarker | Tick, then: Then) -> None:  # type: ignore[override]
        if self.is_loading and isinstance(request, TopicsDeleted):
            self._deleted_meanwhile.append(request)
        super().submit(request, then)

    def _serve(self) -> None:
        super()._serve()
        deleted, self._deleted_meanwhile = self._deleted_meanwhile, []
        for topics in deleted:
            self.submit(topics, lambda _: None)


class GroupCoordinator(Coordinator[GroupShard]):
    topic = OFFSETS_TOPIC

    def __init__(
        self, *, partitions: LocalPartitions, policy: GroupPolicy, clock: Clock, random: Random, report: Report
    ) -> None:
        super().__init__(
            partitions=partitions,
            make_shard=lambda partition: GroupShard(partition, policy, clock, random, report),
        )

    def on_deleted_topics(self, delta: MetadataDelta) -> None:
        """Committed offsets of topics that are gone go too. After ``apply``."""
        if delta.removed_topics:
            gone = tuple(sorted((removed.name, removed.topic_id) for removed in delta.removed_topics.values()))
            for shard in self._shards.values():
                shard.submit(TopicsDeleted(gone), lambda _: None)
