"""The settings of a broker that have an effect here, with Kafka's names; those of our own begin with ``barnabas.``.

Defaults are Kafka's except where ``kafka_default`` says what Kafka has. The defaults of topics (log.retention.ms and
the like) are broker settings too: ``topic_defaults`` lists them from the topic settings' synonyms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from barnabas.model.settings import (
    BOOLEAN,
    DOUBLE,
    INT,
    INT_MAX,
    LIST,
    LONG,
    LONG_MAX,
    SHORT,
    STRING,
    Setting,
    Settings,
    at_least,
    between,
    described,
    each_of,
    one_of,
    setting,
)
from barnabas.model.topic_settings import TopicSettings

HOUR_MS = 3600 * 1000
MINUTE_MS = 60 * 1000
DOUBLE_MAX = 1.7976931348623157e308


_SELECTORS = ("LeaderSelector", "RackAwareReplicaSelector")
REPLICA_SELECTORS = (*_SELECTORS, *(f"org.apache.kafka.common.replica.{name}" for name in _SELECTORS))


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings(Settings):
    node_id: int = setting(INT, 1, "The id of this node.", at_least(0), kafka_default="(required)")
    broker_id: int = setting(INT, -1, "An older name of node.id; -1 leaves it to node.id.")
    process_roles: tuple[str, ...] = setting(
        LIST,
        ("broker", "controller"),
        "Roles of this process: broker, controller or both.",
        each_of("broker", "controller"),
        kafka_default="(required)",
    )
    listeners: tuple[str, ...] = setting(
        LIST,
        ("PLAINTEXT://127.0.0.1:9092",),
        "Addresses to listen on: NAME://HOST:PORT, separated by commas. Port 0 takes a free one.",
        kafka_default="PLAINTEXT://:9092",
    )
    advertised_listeners: tuple[str, ...] | None = setting(
        LIST, None, "Addresses that clients connect to, if they differ from the listeners."
    )
    listener_security_protocol_map: tuple[str, ...] = setting(
        LIST,
        ("PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT"),
        "The protocol of each listener by name. This build speaks PLAINTEXT.",
        kafka_default="SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
    )
    controller_listener_names: tuple[str, ...] = setting(
        LIST, ("CONTROLLER",), "Listeners of the controller. A single node needs none.", kafka_default="(required)"
    )
    controller_quorum_bootstrap_servers: tuple[str, ...] = setting(
        LIST, (), "Controllers to ask for the leader of the quorum: host:port, separated by commas."
    )
    controller_quorum_voters: tuple[str, ...] = setting(
        LIST,
        (),
        "The older, static form of the bootstrap servers: id@host:port. The voters themselves are in the metadata log.",
    )
    controller_quorum_election_timeout_ms: int = setting(
        INT,
        1000,
        "A voter that knows no leader stands for election after this long, or up to twice as long.",
        at_least(1),
    )
    controller_quorum_fetch_timeout_ms: int = setting(
        INT,
        1500,
        "A voter that could not fetch from the leader for this long asks for an election.",
        at_least(1),
        kafka_default="2000",
    )
    controller_quorum_election_backoff_max_ms: int = setting(
        INT, 500, "The longest wait between two elections of a voter.", at_least(1), kafka_default="1000"
    )
    controller_quorum_request_timeout_ms: int = setting(
        INT, 2000, "How long a node of the quorum waits for the answer of another.", at_least(1)
    )
    controller_quorum_retry_backoff_ms: int = setting(
        INT, 20, "The wait before a request to a node of the quorum is tried again.", at_least(0)
    )
    controller_quorum_fetch_max_bytes: int = setting(
        INT, 1048576, "The most that one fetch of the metadata log asks for.", at_least(1)
    )
    controller_quorum_fetch_snapshot_max_bytes: int = setting(
        INT, 1048576, "The most of a metadata snapshot that is asked for at once.", at_least(1)
    )
    controller_quorum_auto_join_enable: bool = setting(
        BOOLEAN, False, "A controller that is no voter asks to become one."
    )
    broker_rack: str | None = setting(STRING, None, "The rack of this broker.")
    log_dir: tuple[str, ...] = setting(
        LIST, ("data",), "The data folder, if log.dirs is not set.", kafka_default="/tmp/kafka-logs"
    )
    log_dirs: tuple[str, ...] | None = setting(LIST, None, "The data folders.")
    num_partitions: int = setting(INT, 1, "Partitions of a topic that is created without a number.", at_least(1))
    default_replication_factor: int = setting(
        INT, 1, "Replicas of a topic that is created without a number.", at_least(1)
    )
    auto_create_topics_enable: bool = setting(BOOLEAN, True, "Create a topic when a client first names it.")
    delete_topic_enable: bool = setting(BOOLEAN, True, "Whether topics can be deleted.")
    broker_session_timeout_ms: int = setting(
        INT, 2500, "A broker without a heartbeat for this long is fenced.", at_least(1), kafka_default="9000"
    )
    broker_heartbeat_interval_ms: int = setting(
        INT, 400, "How often a broker sends a heartbeat to the controller.", at_least(1), kafka_default="2000"
    )
    auto_leader_rebalance_enable: bool = setting(
        BOOLEAN, True, "Whether leadership returns to the preferred replicas from time to time."
    )
    leader_imbalance_check_interval_seconds: int = setting(
        LONG,
        300,
        "How often the controller looks for partitions that another than the preferred replica leads.",
        at_least(1),
    )
    inter_broker_listener_name: str | None = setting(
        STRING, None, "The listener that other brokers connect to; the first one for clients where it is not set."
    )
    replica_lag_time_max_ms: int = setting(
        LONG,
        10000,
        "A follower that has not caught up with its leader for this long leaves the in-sync replicas.",
        at_least(1),
        kafka_default="30000",
    )
    replica_selector_class: str | None = setting(
        STRING,
        None,
        "RackAwareReplicaSelector (with or without its package) sends consumers with client.rack to a replica there.",
        one_of(*REPLICA_SELECTORS),
    )
    replica_fetch_wait_max_ms: int = setting(INT, 500, "How long a leader may hold a follower's fetch.", at_least(1))
    replica_fetch_min_bytes: int = setting(INT, 1, "Bytes that a follower's fetch waits for.", at_least(0))
    replica_fetch_max_bytes: int = setting(INT, 1048576, "Bytes that a follower fetches of a partition.", at_least(0))
    replica_fetch_response_max_bytes: int = setting(INT, 10485760, "Bytes of a response to a follower.", at_least(0))
    replica_fetch_backoff_ms: int = setting(
        INT, 1000, "How long a follower waits after a fetch of a partition has failed.", at_least(0)
    )
    replica_socket_timeout_ms: int = setting(INT, 30000, "How long a follower waits for a response.", at_least(1))
    leader_replication_throttled_rate: int = setting(
        LONG,
        LONG_MAX,
        "Bytes a second that this broker sends to throttled replicas that are not in sync.",
        at_least(0),
        dynamic=True,
    )
    follower_replication_throttled_rate: int = setting(
        LONG,
        LONG_MAX,
        "Bytes a second that this broker fetches for its throttled replicas that are not in sync.",
        at_least(0),
        dynamic=True,
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = setting(
        LONG,
        LONG_MAX,
        "Bytes a second that replicas are copied at between the data folders of this broker.",
        at_least(0),
        dynamic=True,
    )
    connections_max_idle_ms: int = setting(LONG, 600000, "A connection idle for this long is closed.", at_least(1))
    max_connections: int = setting(
        INT,
        INT_MAX,
        "Connections at once. The default limit is the available descriptors less those that the logs need.",
        at_least(1),
        dynamic=True,
    )
    max_connections_per_ip: int = setting(
        INT, INT_MAX, "Connections at once from one address.", at_least(0), dynamic=True
    )
    max_connections_per_ip_overrides: str = setting(
        STRING, "", "Limits of single addresses: host:number, separated by commas.", dynamic=True
    )
    socket_request_max_bytes: int = setting(INT, 104857600, "The largest request accepted.", at_least(1))
    queued_max_request_bytes: int = setting(
        LONG,
        256 << 20,
        "Buffered bytes of incomplete requests, over all connections; at the limit, reading pauses. -1 is no limit.",
        kafka_default="-1",
    )
    socket_listen_backlog_size: int = setting(INT, 50, "Connections that may wait to be accepted.", at_least(1))
    frame_timeout_ms: int = setting(
        LONG,
        30000,
        "A request must be complete this long after its first byte, or its connection is closed.",
        at_least(1),
        key="barnabas.frame.timeout.ms",
    )
    fetch_max_bytes: int = setting(INT, 57671680, "The most bytes in one fetch response.", at_least(1024))
    max_incremental_fetch_session_cache_slots: int = setting(INT, 1000, "Fetch sessions kept.", at_least(0))
    max_request_partition_size_limit: int = setting(
        INT, 2000, "The most partitions in one DescribeTopicPartitions response.", at_least(1)
    )
    log_retention_check_interval_ms: int = setting(LONG, 300000, "How often retention is checked.", at_least(1))
    log_cleaner_enable: bool = setting(BOOLEAN, True, "Whether topics with cleanup.policy=compact are compacted.")
    log_cleaner_backoff_ms: int = setting(
        LONG, 15000, "How often the cleaner checks for work while there is none.", at_least(0), dynamic=True
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        LONG,
        134217728,
        "Memory for the latest offsets of keys during one compaction: 24 bytes a key, nine tenths of them used.",
        at_least(1 << 20),
        dynamic=True,
    )
    log_cleaner_io_buffer_size: int = setting(
        INT, 524288, "Bytes that a compaction reads and writes at a time.", at_least(1024), dynamic=True
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        DOUBLE, DOUBLE_MAX, "Compaction reads and writes no more than this in all.", at_least(1), dynamic=True
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        INT, 60000, "How often recovery points are written; after a crash, logs are checked from there on.", at_least(0)
    )
    producer_id_expiration_ms: int = setting(
        INT, 86400000, "How long the state of an idle idempotent producer is kept.", at_least(1), dynamic=True
    )
    metadata_log_max_record_bytes_between_snapshots: int = setting(
        LONG, 20971520, "Bytes of metadata log after which a snapshot is taken.", at_least(1)
    )
    metadata_log_max_snapshot_interval_ms: int = setting(
        LONG, HOUR_MS, "Time after which a snapshot is taken if the metadata log has grown; 0 disables it.", at_least(0)
    )
    offsets_topic_num_partitions: int = setting(INT, 50, "Partitions of __consumer_offsets.", at_least(1))
    offsets_topic_replication_factor: int = setting(
        SHORT,
        3,
        "Replicas of __consumer_offsets. Unless this is set, no more than there are brokers when it is created.",
        at_least(1),
    )
    offsets_topic_segment_bytes: int = setting(INT, 104857600, "segment.bytes of __consumer_offsets.", at_least(1))
    transaction_max_timeout_ms: int = setting(
        INT, 900000, "The longest transaction.timeout.ms that a producer may ask for.", at_least(1)
    )
    transaction_state_log_num_partitions: int = setting(INT, 50, "Partitions of __transaction_state.", at_least(1))
    transaction_state_log_replication_factor: int = setting(
        SHORT,
        3,
        "Replicas of __transaction_state. Unless this is set, no more than there are brokers when it is created.",
        at_least(1),
    )
    transaction_state_log_min_isr: int = setting(
        INT,
        2,
        "min.insync.replicas of __transaction_state. Unless this is set, one replica may always be away.",
        at_least(1),
    )
    transaction_state_log_segment_bytes: int = setting(
        INT, 104857600, "segment.bytes of __transaction_state.", at_least(1)
    )
    transaction_partition_verification_enable: bool = setting(
        BOOLEAN, True, "Whether older clients' first batch of a transaction is checked with its coordinator (KIP-890)."
    )
    transactional_id_expiration_ms: int = setting(
        INT, 604800000, "How long a transactional id that is not used is kept.", at_least(1)
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        INT, 3600000, "How often expired transactional ids are removed.", at_least(1)
    )
    offsets_retention_minutes: int = setting(
        INT, 10080, "How long the offsets of a group that has no members are kept.", at_least(1)
    )
    offsets_retention_check_interval_ms: int = setting(
        LONG, 600000, "How often expired offsets are removed.", at_least(1)
    )
    offset_metadata_max_bytes: int = setting(INT, 4096, "The longest text that may be committed with an offset.")
    group_initial_rebalance_delay_ms: int = setting(
        INT,
        0,
        "How long a new group waits for more members before its first rebalance.",
        at_least(0),
        kafka_default="3000",
    )
    group_min_session_timeout_ms: int = setting(INT, 6000, "The shortest session timeout of a member.")
    group_max_session_timeout_ms: int = setting(INT, 1800000, "The longest session timeout of a member.")
    group_max_size: int = setting(INT, INT_MAX, "The most members of a group.", at_least(1))
    group_heartbeat_hold_ms: int = setting(
        INT,
        3000,
        "How long heartbeat responses are delayed while there is no rebalance, so that a rebalance reaches members at "
        "once; at most a third of the session timeout, and only for clients with background heartbeats. 0 is no delay.",
        at_least(0),
        key="barnabas.group.heartbeat.hold.ms",
    )
    durable: bool = setting(
        BOOLEAN,
        False,
        "Sync every append of every topic before it is acknowledged: acknowledged messages survive a power failure.",
        key="barnabas.durable",
    )
    validation: str = setting(
        STRING,
        "records",
        "What is checked of a produced batch: its header only, the records of uncompressed batches (records), or the "
        "records of compressed ones too (all).",
        one_of("header", "records", "all"),
        key="barnabas.validation",
    )
    event_loop: str = setting(
        STRING,
        "auto",
        "The event loop: uvloop where it is installed.",
        one_of("auto", "uvloop", "asyncio"),
        key="barnabas.event.loop",
    )
    portable: bool = setting(
        BOOLEAN,
        False,
        "Use nothing that only Linux or a compiler gives: no sendfile, no native record check.",
        key="barnabas.portable",
    )
    open_files: int = setting(
        INT,
        0,
        "Descriptors that the logs may hold open at once; 0 takes a share of what the process may open.",
        between(0, INT_MAX),
        key="barnabas.open.files",
    )

    @property
    def id(self) -> int:
        return self.broker_id if self.broker_id >= 0 else self.node_id

    @property
    def selects_by_rack(self) -> bool:
        return (self.replica_selector_class or "").endswith("RackAwareReplicaSelector")

    @property
    def inter_broker_listener(self) -> str:
        """The listener that other brokers connect to."""
        if self.inter_broker_listener_name is not None:
            return self.inter_broker_listener_name.upper()
        controllers = {name.upper() for name in self.controller_listener_names}
        names = [listener.partition("://")[0].upper() for listener in self.listeners]
        return next((name for name in names if name not in controllers), "PLAINTEXT")

    @property
    def data_directories(self) -> tuple[str, ...]:
        return self.log_dirs or self.log_dir


TIME_ALIASES = {
    # Kafka spells some times in several units; the finer one wins (key -> (canonical key, factor)).
    "log.retention.minutes": ("log.retention.ms", MINUTE_MS),
    "log.retention.hours": ("log.retention.ms", HOUR_MS),
    "log.roll.hours": ("log.roll.ms", HOUR_MS),
    "log.roll.jitter.hours": ("log.roll.jitter.ms", HOUR_MS),
}

FINER_UNITS = frozenset(["log.retention.ms", "log.roll.ms", "log.roll.jitter.ms", "log.flush.interval.ms"])
"""Broker settings that Kafka has no default for: unless they are set, coarser ones count, or nothing does."""

_LEAST_HOURS = {"log.roll.hours": 1, "log.roll.jitter.hours": 0}


def topic_defaults() -> dict[str, Setting]:
    """The broker settings that give topics their defaults, by key."""
    return {
        entry.synonym: replace(entry, key=entry.synonym, synonym=None, dynamic=True)
        for _, entry in described(TopicSettings).values()
        if entry.synonym is not None
    }


def all_broker_settings() -> dict[str, Setting]:
    """Every broker setting with an effect, by key."""
    own = {key: entry for key, (_, entry) in described(BrokerSettings).items()}
    return own | topic_defaults()


def canonical(texts: dict[str, str]) -> dict[str, str]:
    """Times in coarser units become the finer setting, unless that is given itself."""
    result = {key: text for key, text in texts.items() if key not in TIME_ALIASES}
    for key in sorted(TIME_ALIASES, reverse=True):  # minutes before hours: the finer unit wins
        target, factor = TIME_ALIASES[key]
        if key in texts:
            check = at_least(_LEAST_HOURS[key]) if key in _LEAST_HOURS else None
            alias = Setting(key=key, type=INT, default=0, documentation="", check=check)
            amount = alias.parse(texts[key])
            result.setdefault(target, str(amount * factor if amount >= 0 else -1))
    return result
