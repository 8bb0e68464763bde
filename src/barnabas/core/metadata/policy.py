"""The settings of the node that the metadata machine uses."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from barnabas.model.settings import Setting
from barnabas.wire.schema import Message

Outcome = tuple[list[Message], Message | None]
"""The records that a decision asks to be appended, and its reply."""


class MetadataPolicy(Struct, frozen=True, kw_only=True):
    node_id: int
    cluster_id: str
    default_partitions: int = 1
    default_replication_factor: int = 1
    delete_topic_enabled: bool = True
    broker_session_timeout_ms: int = 9000
    auto_leader_rebalance_enabled: bool = True
    leader_imbalance_check_interval_ms: int = 300_000
    static_settings: Mapping[str, str]
    """The node's file, by key: gives topics their defaults."""
    broker_settings: Mapping[str, Setting]
    """Every broker setting that this build knows, by key."""
