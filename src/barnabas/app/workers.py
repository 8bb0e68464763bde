"""The settings of several workers on one machine, all from one settings file (``barnabas serve --workers N``).

Worker i, from 0 to N-1, has the settings of the file but for these:

    node.id                    node.id + i
    listeners                  each port + i; that of the controller belongs to worker 0 only
    advertised.listeners       likewise
    log.dirs                   worker-i below each folder
    broker.rack                as it is, or the name of the machine: workers of a machine share a rack
    process.roles              worker 0 as it is, the others broker

Where controller.quorum.bootstrap.servers is not set, worker 0 is the only controller and the others join it; without a
listener for it in the file it gets one on 127.0.0.1, 10000 above the first port.
"""

from __future__ import annotations

import os
import platform
import random
import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from barnabas.app import settings_loader, storage_tool
from barnabas.app.listeners import MAX_PORT, Address, parse
from barnabas.app.os_disk import OsDisk
from barnabas.core.metadata.features import BOOTSTRAP_FEATURES
from barnabas.core.raft.voters import VoterSet
from barnabas.model.broker_settings import BrokerSettings
from barnabas.model.errors import StartError
from barnabas.model.ids import Uuid, uuid_text
from barnabas.net.local_ports import free_ports
from barnabas.node import format as formatting

CONTROLLER_PORT_DISTANCE = 10_000
LOCAL = "127.0.0.1"
_FOLDER = re.compile(r"worker-(\d+)")


class Worker(Struct, frozen=True, kw_only=True):
    number: int
    given: tuple[tuple[str, str], ...]
    """Settings that override those of the file."""
    settings: BrokerSettings


def plan_workers(
    *,
    config: str | None,
    environment: Mapping[str, str],
    given: Sequence[tuple[str, str]],
    count: int,
    host_name: str | None = None,
) -> list[Worker]:
    """Raises StartError."""
    loaded = settings_loader.load(file=config, environment=environment, given=given)
    base = loaded.settings
    if "broker" not in base.process_roles:
        raise StartError("--workers are brokers, and process.roles is controller.")
    is_alone = not (base.controller_quorum_bootstrap_servers or base.controller_quorum_voters)
    if is_alone and "controller" not in base.process_roles:
        raise StartError("There is no controller: set controller.quorum.bootstrap.servers, or process.roles.")
    rack = base.broker_rack or host_name or platform.node()
    controller = _controller_listener(base) if "controller" in base.process_roles else None
    workers = []
    for number in range(count):
        own = _overrides(base, number, rack, controller, is_alone=is_alone, names=loaded.texts)
        settings = settings_loader.load(file=config, environment=environment, given=[*given, *own.items()]).settings
        workers.append(Worker(number=number, given=tuple(own.items()), settings=settings))
    return workers


def _controller_listener(base: BrokerSettings) -> Address:
    """Where the controller of worker 0 listens."""
    name = (base.controller_listener_names or ("CONTROLLER",))[0].upper()
    listed = parse("listeners", base.listeners)
    found = next((address for address in listed if address.name == name), None)
    port = listed[0].port if found is None else found.port
    if found is None and port:
        port += CONTROLLER_PORT_DISTANCE if port + CONTROLLER_PORT_DISTANCE <= MAX_PORT else -CONTROLLER_PORT_DISTANCE
    if not port:
        port = free_ports(LOCAL, 1)[0]
    return Address(name, LOCAL if found is None else found.host, port)


def _overrides(
    base: BrokerSettings,
    number: int,
    rack: str,
    controller: Address | None,
    *,
    is_alone: bool,
    names: Mapping[str, str],
) -> dict[str, str]:
    is_controller = number == 0 and controller is not None
    own = {
        "node.id": str(base.id + number),
        "broker.rack": rack,
        "log.dirs": ",".join(f"{folder}/worker-{number}" for folder in base.data_directories),
        "process.roles": ",".join(base.process_roles) if number == 0 else "broker",
    }
    if "broker.id" in names:
        own["broker.id"] = own["node.id"]
    listed = _shifted("listeners", base.listeners, base, number)
    if is_controller and controller is not None:
        listed.append(controller)
    own["listeners"] = ",".join(map(_text, listed))
    if base.advertised_listeners:
        advertised = _shifted("advertised.listeners", base.advertised_listeners, base, number)
        if is_controller:
            advertised += _of_controller("advertised.listeners", base.advertised_listeners, base)
        own["advertised.listeners"] = ",".join(map(_text, advertised))
    if is_alone and number > 0 and controller is not None:
        own["controller.quorum.bootstrap.servers"] = f"{controller.host or LOCAL}:{controller.port}"
    return own


def _shifted(key: str, texts: Sequence[str], base: BrokerSettings, number: int) -> list[Address]:
    """Listeners of clients, at the ports of a worker; port 0 stays a free one."""
    controllers = {name.upper() for name in base.controller_listener_names}
    return [
        Address(each.name, each.host, each.port + number if each.port else 0)
        for each in parse(key, texts)
        if each.name not in controllers
    ]


def _of_controller(key: str, texts: Sequence[str], base: BrokerSettings) -> list[Address]:
    controllers = {name.upper() for name in base.controller_listener_names}
    return [each for each in parse(key, texts) if each.name in controllers]


def _text(address: Address) -> str:
    return f"{address.name}://{address}"


# Folders


def check_folders(base: Sequence[str], count: int) -> list[str]:
    """Warnings about the folders that the workers' ones are in. Raises StartError."""
    warnings = []
    for folder in base:
        if os.path.exists(f"{folder}/meta.properties"):
            raise StartError(
                f"{folder} is the folder of a single broker, and workers have folders below it. To make it the first "
                f"worker's: stop the broker, and move all that is in {folder} to {folder}/worker-0."
            )
        present = os.listdir(folder) if os.path.isdir(folder) else []
        others = sorted(int(match[1]) for match in map(_FOLDER.fullmatch, present) if match and int(match[1]) >= count)
        if others:
            warnings.append(f"{folder} has folders of {len(others)} more workers, whose replicas are not served now.")
    return warnings


def format_workers(workers: Sequence[Worker]) -> None:
    """Gives the folders that are new the identity of the cluster that worker 0 belongs to. Raises StartError."""
    first = workers[0].settings
    cluster_id = _cluster_id(first)
    joins = first.controller_quorum_bootstrap_servers or first.controller_quorum_voters
    if cluster_id is None:
        if joins:
            raise StartError(
                f"{first.data_directories[0]} is not formatted, and a node that joins a cluster does not format it by "
                "itself. Run: barnabas storage format --workers --cluster-id ID --config FILE"
            )
        cluster_id = uuid_text(formatting.random_uuid(random.SystemRandom()))
        format_worker(workers[0], cluster_id, storage_tool.sole_voter(first))
    for worker in workers[1:]:
        format_worker(worker, cluster_id, (None, None))


def format_worker(worker: Worker, cluster_id: str, voters: tuple[VoterSet | None, Uuid | None]) -> list[str]:
    """Leaves folders that have an identity as they are. Raises StartError."""
    plan = storage_tool.Plan(
        settings=worker.settings,
        roots=[os.path.abspath(path) for path in worker.settings.data_directories],
        cluster_id=cluster_id,
        voters=voters[0],
        directory_id=voters[1],
        features={name: level for name, level in BOOTSTRAP_FEATURES.items() if level and name != "kraft.version"},
    )
    return storage_tool.carry_out(plan, ignore_formatted=True)


def _cluster_id(settings: BrokerSettings) -> str | None:
    disk = OsDisk(lambda callback: callback(), max_open_files=4)
    try:
        for folder in settings.data_directories:
            found = formatting.read_identity(disk, os.path.abspath(folder))
            if found is not None:
                return found.get("cluster.id")
    except formatting.WrongFolder as problem:
        raise StartError(f"{problem}.") from problem
    finally:
        disk.close()
    return None
