"""The settings of a topic, with Kafka's names and defaults."""

from __future__ import annotations

import re
from dataclasses import dataclass

from barnabas.model.settings import (
    BOOLEAN,
    DOUBLE,
    INT,
    INT_MAX,
    LIST,
    LONG,
    LONG_MAX,
    STRING,
    Settings,
    at_least,
    between,
    each_of,
    one_of,
    setting,
)

WEEK_MS = 7 * 24 * 3600 * 1000
DAY_MS = 24 * 3600 * 1000
COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


def _gzip_level(level: int) -> str | None:
    return None if level == -1 or 1 <= level <= 9 else "Value must be between 1 and 9, or -1"


def _replicas(value: tuple[str, ...]) -> str | None:
    if value == ("*",) or all(re.fullmatch("([0-9]+:[0-9]+)?", part) for part in value):
        return None
    return "must be the literal '*' or a list of replicas: [partitionId]:[brokerId],[partitionId]:[brokerId],..."


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings(Settings):
    cleanup_policy: tuple[str, ...] = setting(
        LIST,
        ("delete",),
        "What happens to old segments: delete drops them by time and size, compact keeps each key's latest record; "
        "without either they stay.",
        each_of("compact", "delete", may_be_empty=True),
        synonym="log.cleanup.policy",
    )
    compression_gzip_level: int = setting(
        INT, -1, "The level when the broker compresses with gzip.", _gzip_level, synonym="compression.gzip.level"
    )
    compression_lz4_level: int = setting(
        INT, 9, "The level when the broker compresses with lz4.", between(1, 17), synonym="compression.lz4.level"
    )
    compression_type: str = setting(
        STRING,
        "producer",
        "The codec the log is kept in; producer keeps what the producer chose, any other recompresses what differs.",
        one_of(*COMPRESSION_TYPES),
        synonym="compression.type",
    )
    compression_zstd_level: int = setting(
        INT,
        3,
        "The level when the broker compresses with zstd.",
        between(-131072, 22),
        synonym="compression.zstd.level",
    )
    delete_retention_ms: int = setting(
        LONG,
        DAY_MS,
        "How long a compacted topic keeps tombstones.",
        at_least(0),
        synonym="log.cleaner.delete.retention.ms",
    )
    file_delete_delay_ms: int = setting(
        LONG,
        60000,
        "How long a deleted segment's files stay on the disk under the name .deleted.",
        at_least(0),
        synonym="log.segment.delete.delay.ms",
    )
    flush_messages: int = setting(
        LONG,
        LONG_MAX,
        "Sync the log when this many messages are unsynced; acknowledgement and visibility wait for it.",
        at_least(1),
        synonym="log.flush.interval.messages",
    )
    flush_ms: int = setting(
        LONG,
        LONG_MAX,
        "Sync the log when a message has been unsynced for this long.",
        at_least(0),
        synonym="log.flush.interval.ms",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        LIST,
        (),
        "Replicas whose replication is throttled on the follower's side: partition:broker pairs, or *.",
        _replicas,
    )
    index_interval_bytes: int = setting(
        INT,
        4096,
        "How many bytes of log lie between two entries of the sparse index.",
        at_least(0),
        synonym="log.index.interval.bytes",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        LIST,
        (),
        "Replicas whose replication is throttled on the leader's side: partition:broker pairs, or *.",
        _replicas,
    )
    local_retention_bytes: int = setting(
        LONG,
        -2,
        "Bytes kept on the local disk with remote storage; -2 means retention.bytes.",
        at_least(-2),
        synonym="log.local.retention.bytes",
    )
    local_retention_ms: int = setting(
        LONG,
        -2,
        "Time kept on the local disk with remote storage; -2 means retention.ms.",
        at_least(-2),
        synonym="log.local.retention.ms",
    )
    max_compaction_lag_ms: int = setting(
        LONG,
        LONG_MAX,
        "After this long a record of a compacted topic is eligible for compaction.",
        at_least(1),
        synonym="log.cleaner.max.compaction.lag.ms",
    )
    max_message_bytes: int = setting(
        INT, 1048588, "The largest record batch accepted, after compression.", at_least(0), synonym="message.max.bytes"
    )
    message_timestamp_after_max_ms: int = setting(
        LONG,
        3600000,
        "How far a producer's timestamp may lie after the broker's clock.",
        at_least(0),
        synonym="log.message.timestamp.after.max.ms",
    )
    message_timestamp_before_max_ms: int = setting(
        LONG,
        LONG_MAX,
        "How far a producer's timestamp may lie before the broker's clock.",
        at_least(0),
        synonym="log.message.timestamp.before.max.ms",
    )
    message_timestamp_type: str = setting(
        STRING,
        "CreateTime",
        "Whether a record keeps its producer's timestamp or gets the time of its append.",
        one_of("CreateTime", "LogAppendTime"),
        synonym="log.message.timestamp.type",
    )
    min_cleanable_dirty_ratio: float = setting(
        DOUBLE,
        0.5,
        "The share of uncompacted log above which a partition is compacted.",
        between(0, 1),
        synonym="log.cleaner.min.cleanable.ratio",
    )
    min_compaction_lag_ms: int = setting(
        LONG,
        0,
        "How long a record stays uncompacted at least.",
        at_least(0),
        synonym="log.cleaner.min.compaction.lag.ms",
    )
    min_insync_replicas: int = setting(
        INT,
        1,
        "Below this many in-sync replicas a write with acks=all is refused.",
        at_least(1),
        synonym="min.insync.replicas",
    )
    preallocate: bool = setting(
        BOOLEAN, False, "Reserve the blocks of a segment when it is created.", synonym="log.preallocate"
    )
    remote_log_copy_disable: bool = setting(BOOLEAN, False, "Stop copying segments to the remote tier.")
    remote_log_delete_on_disable: bool = setting(BOOLEAN, False, "Delete remote data when the tier is disabled.")
    remote_storage_enable: bool = setting(BOOLEAN, False, "Keep closed segments in the remote tier.")
    retention_bytes: int = setting(
        LONG,
        -1,
        "Segments beyond this many bytes of a partition are deleted; -1 is no bound.",
        synonym="log.retention.bytes",
    )
    retention_ms: int = setting(
        LONG,
        WEEK_MS,
        "Segments whose newest record is older than this are deleted; -1 is no bound.",
        at_least(-1),
        synonym="log.retention.ms",
    )
    segment_bytes: int = setting(
        INT, 1 << 30, "A segment rolls before it grows beyond this.", at_least(1 << 20), synonym="log.segment.bytes"
    )
    segment_index_bytes: int = setting(
        INT,
        10 << 20,
        "A segment rolls when its offset index reaches this.",
        between(4, INT_MAX),
        synonym="log.index.size.max.bytes",
    )
    segment_jitter_ms: int = setting(
        LONG,
        0,
        "Up to this much is taken off segment.ms at random, so that segments do not all roll at once.",
        at_least(0),
        synonym="log.roll.jitter.ms",
    )
    segment_ms: int = setting(
        LONG, WEEK_MS, "A segment rolls when its first record is older than this.", at_least(1), synonym="log.roll.ms"
    )
    unclean_leader_election_enable: bool = setting(
        BOOLEAN,
        False,
        "Whether a replica that is not in sync may lead when no other is left: loses records.",
        synonym="unclean.leader.election.enable",
    )

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    def conflict(self) -> str | None:
        """What is wrong with values that are each allowed by themselves, in Kafka's words."""
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            return (
                f"conflict topic config setting min.compaction.lag.ms ({self.min_compaction_lag_ms}) > "
                f"max.compaction.lag.ms ({self.max_compaction_lag_ms})"
            )
        if self.remote_storage_enable:
            return (
                "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log "
                "storage: remote.storage.enable=true"
            )
        return None
