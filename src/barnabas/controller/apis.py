"""The table of APIs that a controller serves. A handler and its messages are imported with their first request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.runtime.served_apis import ServedApi, make_table
from barnabas.runtime.served_apis import advertised as _advertised

if TYPE_CHECKING:
    from barnabas.controller.controller import Controller
    from barnabas.runtime.pipeline import Api

SERVED = (
    ServedApi(1, 12, 18, "fetch"),
    ServedApi(18, 0, 4, "api_versions"),
    ServedApi(19, 2, 7, "create_topics"),
    ServedApi(20, 1, 6, "delete_topics"),
    ServedApi(32, 1, 4, "describe_configs"),
    ServedApi(33, 0, 2, "alter_configs"),
    ServedApi(37, 0, 3, "create_partitions"),
    ServedApi(43, 0, 2, "elect_leaders"),
    ServedApi(44, 0, 1, "incremental_alter_configs"),
    ServedApi(45, 0, 1, "alter_partition_reassignments"),
    ServedApi(46, 0, 0, "list_partition_reassignments"),
    ServedApi(52, 0, 2, "vote"),
    ServedApi(53, 0, 1, "begin_quorum_epoch"),
    ServedApi(54, 0, 1, "end_quorum_epoch"),
    ServedApi(55, 0, 2, "describe_quorum"),
    ServedApi(56, 2, 3, "alter_partition"),
    ServedApi(57, 0, 2, "update_features"),
    ServedApi(59, 0, 1, "fetch_snapshot"),
    ServedApi(60, 0, 2, "describe_cluster"),
    ServedApi(62, 0, 4, "broker_registration"),
    ServedApi(63, 0, 2, "broker_heartbeat"),
    ServedApi(64, 0, 0, "unregister_broker"),
    ServedApi(67, 0, 0, "allocate_producer_ids"),
    ServedApi(70, 0, 0, "controller_registration"),
    ServedApi(73, 0, 0, "assign_replicas_to_dirs"),
    ServedApi(80, 0, 1, "add_raft_voter"),
    ServedApi(81, 0, 0, "remove_raft_voter"),
    ServedApi(82, 0, 0, "update_raft_voter"),
)


def advertised() -> list[tuple[int, int, int]]:
    return _advertised(SERVED)


def table(controller: Controller) -> dict[int, Api]:
    return make_table(SERVED, "barnabas.controller.handlers", controller)
