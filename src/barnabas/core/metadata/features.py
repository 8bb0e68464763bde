"""The features of a cluster (KIP-584), and which of them this build implements.

A new cluster finalizes what Kafka 4.3 finalizes, so that Kafka opens our folders and we open Kafka's. ApiVersions lists
only features that are implemented: with a finalized group.version clients would use APIs that are missing.
"""

from __future__ import annotations

from collections.abc import Mapping

BOOTSTRAP_FEATURES = {
    "metadata.version": 30,
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}

KNOWN_RANGES = {
    "metadata.version": (7, 30),
    "eligible.leader.replicas.version": (0, 1),
    "transaction.version": (0, 2),
    "streams.version": (0, 1),
    "group.version": (0, 1),
    "kraft.version": (0, 1),
    "share.version": (0, 1),
}
"""What a node registers: the levels whose records it can read and keep."""

HANDLED_FEATURES = {
    "metadata.version": (7, 30),
    "kraft.version": (0, 1),
    "transaction.version": (0, 2),
}

METADATA_VERSION = "metadata.version"
TRANSACTION_VERSION = "transaction.version"
ELIGIBLE_LEADER_REPLICAS = "eligible.leader.replicas.version"
KRAFT_VERSION = "kraft.version"

NO_SHRINK_BUMP_LEVEL = 12
"""3.6-IV0: from here on an in-sync set that shrinks keeps the leader epoch."""
CONTROLLER_REGISTRATION_LEVEL = 15
"""3.7-IV0 (KIP-919)."""
DIRECTORY_ASSIGNMENT_LEVEL = 17
"""3.7-IV2 (KIP-858)."""


def has_eligible_replicas(features: Mapping[str, int]) -> bool:
    return features.get(ELIGIBLE_LEADER_REPLICAS, 0) > 0


def bumps_leader_epoch_on_shrink(features: Mapping[str, int]) -> bool:
    return 0 < features.get(METADATA_VERSION, 0) < NO_SHRINK_BUMP_LEVEL
