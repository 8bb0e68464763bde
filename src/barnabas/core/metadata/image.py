"""The metadata image: the immutable state of the cluster at one offset of the metadata log.

A new image shares with the old one what did not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from barnabas.model.ids import NO_LEADER, Uuid

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
CLIENT_METRICS_RESOURCE = 16
GROUP_RESOURCE = 32

UNASSIGNED_DIRECTORY, LOST_DIRECTORY, MIGRATING_DIRECTORY = (number.to_bytes(16, "big") for number in range(3))
"""Directory ids with a meaning of their own (KIP-858). Ids below a hundred are reserved."""


class Endpoint(Struct, frozen=True, gc=False):
    name: str
    host: str
    port: int
    security_protocol: int = 0


class BrokerImage(Struct, frozen=True, kw_only=True):
    node_id: int
    broker_epoch: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: tuple[tuple[str, int, int], ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[bytes, ...]
    cordoned_directories: tuple[bytes, ...] | None = None

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener), None)

    @property
    def serves(self) -> bool:
        """Whether partitions may be led or newly placed here."""
        return not self.fenced and not self.in_controlled_shutdown

    def has_online(self, directory: bytes) -> bool:
        """Whether a replica in that directory can be read and written (KIP-858)."""
        if directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
            return True
        return directory != LOST_DIRECTORY and (not self.directories or directory in self.directories)

    @property
    def default_directory(self) -> bytes:
        """A broker with one folder has no choice; with several it reports where it put the replica."""
        return self.directories[0] if len(self.directories) == 1 else UNASSIGNED_DIRECTORY

    @property
    def is_cordoned(self) -> bool:
        """Every directory is closed to new replicas (KIP-1066)."""
        return bool(self.cordoned_directories) and set(self.directories) <= set(self.cordoned_directories or ())


class ControllerImage(Struct, frozen=True, kw_only=True):
    node_id: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: tuple[tuple[str, int, int], ...]


class PartitionImage(Struct, frozen=True, kw_only=True):
    replicas: tuple[int, ...]
    """In order of preference: the first is the preferred leader."""
    in_sync_replicas: tuple[int, ...]
    leader: int = NO_LEADER
    leader_epoch: int = 0
    """Goes up with every change of leader, including to none and back to the same node."""
    partition_epoch: int = 0
    directories: tuple[bytes, ...] = ()
    """One per replica, in the order of replicas."""
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_eligible: tuple[int, ...] = ()

    def directory_of(self, node_id: int) -> bytes:
        """Where a replica is stored; unassigned for what is not known."""
        places = dict(zip(self.replicas, self.directories, strict=False))
        return places.get(node_id, UNASSIGNED_DIRECTORY)

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)


class TopicImage(Struct, frozen=True, kw_only=True):
    name: str
    topic_id: Uuid
    partitions: tuple[PartitionImage, ...]


Resource = tuple[int, str]


class MetadataImage(Struct, frozen=True, kw_only=True):
    next_offset: int = 0
    """The offset of the metadata log after the last record contained."""
    raft_epoch: int = 0
    timestamp_ms: int = 0
    features: Mapping[str, int] = {}
    brokers: Mapping[int, BrokerImage] = {}
    controllers: Mapping[int, ControllerImage] = {}
    topics: Mapping[str, TopicImage] = {}
    topics_by_id: Mapping[bytes, TopicImage] = {}
    configs: Mapping[Resource, Mapping[str, str]] = {}
    next_producer_id: int = 0
    producer_ids_owner: tuple[int, int] = (-1, -1)
    """(broker, broker epoch) of the latest allocation."""
    kept: tuple[Any, ...] = ()
    """Records of kinds that this build does not act upon, in order: kept, so that snapshots lose nothing."""

    def topic_configs(self, topic: str) -> Mapping[str, str]:
        return self.configs.get((TOPIC_RESOURCE, topic), {})

    def broker_configs(self, node_id: int) -> Mapping[str, str]:
        """Dynamic settings of one broker over those of all brokers (KIP-226)."""
        everyone = self.configs.get((BROKER_RESOURCE, ""), {})
        return {**everyone, **self.configs.get((BROKER_RESOURCE, str(node_id)), {})}


EMPTY_IMAGE = MetadataImage()
