"""What holds for partitions in one decision: who may lead, and the topic's settings that elections depend on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from barnabas.core.metadata.configs import MIN_IN_SYNC, origins
from barnabas.core.metadata.features import bumps_leader_epoch_on_shrink, has_eligible_replicas
from barnabas.core.metadata.image import UNASSIGNED_DIRECTORY, BrokerImage, MetadataImage, PartitionImage, TopicImage
from barnabas.core.metadata.index import Key
from barnabas.core.metadata.partition_change import Election, PartitionChange
from barnabas.core.metadata.policy import MetadataPolicy
from barnabas.model.settings import described
from barnabas.model.topic_settings import TopicSettings
from barnabas.wire.stored.metadata_topics import PartitionChangeRecord

UNCLEAN_ELECTION = "unclean.leader.election.enable"


class PartitionRules:
    """Valid for one decision: the image must not change meanwhile."""

    def __init__(self, image: MetadataImage, policy: MetadataPolicy, changed: Iterable[BrokerImage] = ()) -> None:
        """``changed`` are brokers as they will be after the records of the decision."""
        self.image = image
        self.has_eligible_replicas = has_eligible_replicas(image.features)
        self._policy = policy
        self._brokers = {**image.brokers, **{broker.node_id: broker for broker in changed}}
        self._bumps_on_shrink = bumps_leader_epoch_on_shrink(image.features)
        self._values: dict[tuple[str, str], Any] = {}

    def broker(self, node_id: int) -> BrokerImage | None:
        return self._brokers.get(node_id)

    def serves(self, node_id: int) -> bool:
        broker = self._brokers.get(node_id)
        return broker is not None and broker.serves

    def may_lead(self, partition: PartitionImage, node_id: int) -> bool:
        broker = self._brokers.get(node_id)
        return broker is not None and broker.serves and broker.has_online(partition.directory_of(node_id))

    def default_directory(self, node_id: int) -> bytes:
        broker = self._brokers.get(node_id)
        return broker.default_directory if broker is not None else UNASSIGNED_DIRECTORY

    # Settings of topics

    def min_in_sync(self, topic: str) -> int:
        value: int = self._setting(topic, MIN_IN_SYNC)
        return value

    def is_unclean_allowed(self, topic: str) -> bool:
        value: bool = self._setting(topic, UNCLEAN_ELECTION)
        return value

    def _setting(self, topic: str, key: str) -> Any:
        found = self._values.get((topic, key))
        if found is None:
            _, entry = described(TopicSettings)[key]
            origin = origins(entry, self._policy.node_id, self.image, topic, self._policy.static_settings)[0]
            found = self._values[topic, key] = entry.parse(origin.text)
        return found

    # Changes

    def find(self, key: Key) -> tuple[TopicImage, PartitionImage] | None:
        topic = self.image.topics_by_id.get(key[0])
        if topic is None or not 0 <= key[1] < len(topic.partitions):
            return None
        return topic, topic.partitions[key[1]]

    def change(
        self, topic: TopicImage, partition: PartitionImage, *, placed: PartitionImage | None = None
    ) -> PartitionChange:
        """A change whose targets are yet to be set. ``placed`` is the partition with its directories after it."""
        may_lead: Callable[[int], bool] = partial(self.may_lead, placed or partition)
        change = PartitionChange(
            partition,
            may_lead=may_lead,
            min_in_sync=self.min_in_sync(topic.name),
            with_eligible=self.has_eligible_replicas,
            bumps_on_shrink=self._bumps_on_shrink,
        )
        if self.is_unclean_allowed(topic.name):
            change.election = Election.UNCLEAN
        return change

    def examine(
        self, key: Key, *, election: Election | None = None, stopped_uncleanly: int | None = None
    ) -> PartitionChangeRecord | None:
        """What the state of the brokers asks for: replicas that do not serve leave the in-sync set, somebody leads."""
        found = self.find(key)
        if found is None:
            return None
        topic, partition = found
        change = self.change(topic, partition)
        if election is not None:
            change.election = election
        change.in_sync = [node for node in partition.in_sync_replicas if self.may_lead(partition, node)]
        if stopped_uncleanly is not None:
            change.stopped_uncleanly = (stopped_uncleanly,)
        return change.build(topic.topic_id, key[1])
