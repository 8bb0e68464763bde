"""The features of a cluster (KIP-584), and which of them this build implements.

A new cluster finalizes what Kafka 4.3 finalizes, so that Kafka opens our folders and we open Kafka's. ApiVersions lists
only features that are implemented: with a finalized transaction.version clients would use APIs that are missing.
"""

from __future__ import annotations

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
}
