"""The table of APIs that a controller serves. A handler and its messages are imported with their first request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.runtime.served_apis import ServedApi, make_table
from barnabas.runtime.served_apis import advertised as _advertised

if TYPE_CHECKING:
    from barnabas.controller.controller import Controller
    from barnabas.runtime.pipeline import Api

SERVED = (
    ServedApi(18, 0, 4, "api_versions"),
    ServedApi(19, 2, 7, "create_topics"),
    ServedApi(20, 1, 6, "delete_topics"),
    ServedApi(33, 0, 2, "alter_configs"),
    ServedApi(37, 0, 3, "create_partitions"),
    ServedApi(44, 0, 1, "incremental_alter_configs"),
    ServedApi(55, 0, 2, "describe_quorum"),
    ServedApi(62, 0, 4, "broker_registration"),
    ServedApi(63, 0, 2, "broker_heartbeat"),
    ServedApi(67, 0, 0, "allocate_producer_ids"),
    ServedApi(70, 0, 0, "controller_registration"),
)


def advertised() -> list[tuple[int, int, int]]:
    return _advertised(SERVED)


def table(controller: Controller) -> dict[int, Api]:
    return make_table(SERVED, "barnabas.controller.handlers", controller)
