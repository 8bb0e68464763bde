"""The table of APIs that a broker serves. A handler and its messages are imported with their first request."""

from __future__ import annotations

from barnabas.broker.context import Broker
from barnabas.runtime.pipeline import Api
from barnabas.runtime.served_apis import ServedApi, make_table
from barnabas.runtime.served_apis import advertised as _advertised

SERVED = (
    ServedApi(0, 3, 13, "produce", advertised_min_version=0),
    ServedApi(1, 4, 18, "fetch"),
    ServedApi(2, 1, 11, "list_offsets"),
    ServedApi(3, 0, 13, "metadata"),
    ServedApi(8, 2, 10, "offset_commit"),
    ServedApi(9, 1, 10, "offset_fetch"),
    ServedApi(10, 0, 6, "find_coordinator"),
    ServedApi(11, 0, 9, "join_group"),
    ServedApi(12, 0, 4, "heartbeat"),
    ServedApi(13, 0, 5, "leave_group"),
    ServedApi(14, 0, 5, "sync_group"),
    ServedApi(15, 0, 6, "describe_groups"),
    ServedApi(16, 0, 5, "list_groups"),
    ServedApi(18, 0, 4, "api_versions"),
    ServedApi(19, 2, 7, "create_topics"),
    ServedApi(20, 1, 6, "delete_topics"),
    ServedApi(21, 0, 2, "delete_records"),
    ServedApi(22, 0, 5, "init_producer_id"),
    ServedApi(23, 2, 4, "offset_for_leader_epoch"),
    ServedApi(24, 0, 5, "add_partitions_to_txn"),
    ServedApi(25, 0, 4, "add_offsets_to_txn"),
    ServedApi(26, 0, 5, "end_txn"),
    ServedApi(27, 1, 2, "write_txn_markers"),
    ServedApi(28, 0, 5, "txn_offset_commit"),
    ServedApi(32, 1, 4, "describe_configs"),
    ServedApi(33, 0, 2, "alter_configs"),
    ServedApi(34, 1, 2, "alter_replica_log_dirs"),
    ServedApi(35, 1, 5, "describe_log_dirs"),
    ServedApi(37, 0, 3, "create_partitions"),
    ServedApi(42, 0, 2, "delete_groups"),
    ServedApi(43, 0, 2, "elect_leaders"),
    ServedApi(44, 0, 1, "incremental_alter_configs"),
    ServedApi(45, 0, 1, "alter_partition_reassignments"),
    ServedApi(46, 0, 0, "list_partition_reassignments"),
    ServedApi(47, 0, 0, "offset_delete"),
    ServedApi(55, 0, 2, "describe_quorum"),
    ServedApi(57, 0, 2, "update_features"),
    ServedApi(60, 0, 2, "describe_cluster"),
    ServedApi(61, 0, 0, "describe_producers"),
    ServedApi(64, 0, 0, "unregister_broker"),
    ServedApi(65, 0, 0, "describe_transactions"),
    ServedApi(66, 0, 2, "list_transactions"),
    ServedApi(74, 0, 1, "list_config_resources"),
    ServedApi(75, 0, 0, "describe_topic_partitions"),
    ServedApi(80, 0, 1, "add_raft_voter"),
    ServedApi(81, 0, 0, "remove_raft_voter"),
)

"""Kafka's APIs, which clients find in ApiVersions."""

OWN = (ServedApi(10000, 0, 0, "describe_metrics"),)
"""Ours, which ApiVersions leaves out: stock clients have no use for them."""


def advertised() -> list[tuple[int, int, int]]:
    return _advertised(SERVED)


def table(broker: Broker) -> dict[int, Api]:
    return make_table((*SERVED, *OWN), "barnabas.broker.handlers", broker)
