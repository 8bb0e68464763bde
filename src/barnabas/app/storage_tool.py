"""Formats and inspects the data folders of a node, as Kafka's storage tool does."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from barnabas.app import settings_loader
from barnabas.app.listeners import parse
from barnabas.app.os_disk import OsDisk
from barnabas.core.metadata.features import BOOTSTRAP_FEATURES, KNOWN_RANGES
from barnabas.core.raft.voters import Voter, VoterNode, VoterSet
from barnabas.model.broker_settings import BrokerSettings
from barnabas.model.errors import StartError
from barnabas.model.ids import METADATA_TOPIC, Uuid, uuid_from_text, uuid_text
from barnabas.model.ports import DiskError
from barnabas.node import folders
from barnabas.node import format as formatting
from barnabas.runtime import metadata_snapshot

RELEASES = {"4.0": 25, "4.1": 27, "4.2": 29, "4.3": 30}
"""Kafka's releases and their metadata.version."""

_VOTER = re.compile(r"(\d+)@(\[[0-9a-fA-F:.%]*\]|[^:@\s]+):(\d{1,5}):([A-Za-z0-9_-]{22})")


class Plan(Struct, frozen=True, kw_only=True):
    settings: BrokerSettings
    roots: list[str]
    cluster_id: str
    voters: VoterSet | None
    """None for a node that joins an existing cluster."""
    directory_id: Uuid | None
    """Of the metadata folder, where --initial-controllers names it."""
    features: dict[str, int]


def plan(
    *,
    config: str,
    cluster_id: str,
    standalone: bool,
    initial_controllers: str | None,
    features: Sequence[str],
    release_version: str | None,
    has_choice: bool,
    below: str | None = None,
) -> Plan:
    """``below`` is the folder inside each data folder that the node has, where it shares them. Raises StartError."""
    settings = settings_loader.load(file=config).settings
    _check_uuid("--cluster-id", cluster_id)
    is_controller = "controller" in settings.process_roles
    if is_controller and not has_choice and not settings.controller_quorum_voters:
        raise StartError(
            "This node is a controller: give --standalone (a cluster of its own), --initial-controllers (one of the "
            "first controllers) or --no-initial-controllers (it joins an existing cluster)."
        )
    if not is_controller and (standalone or initial_controllers is not None):
        raise StartError("--standalone and --initial-controllers are for controllers, and process.roles is broker.")
    voters: VoterSet | None = None
    directory_id: Uuid | None = None
    if standalone:
        voters, directory_id = sole_voter(settings)
    elif initial_controllers is not None:
        voters = _parse_voters(initial_controllers, _controller_listener(settings))
        own = voters.find(settings.id)
        if own is None:
            raise StartError(f"--initial-controllers does not name node {settings.id}, whose settings {config} holds.")
        directory_id = Uuid(own.voter.directory_id)
    return Plan(
        settings=settings,
        roots=[os.path.abspath(os.path.join(path, below or "")) for path in settings.data_directories],
        cluster_id=cluster_id,
        voters=voters,
        directory_id=directory_id,
        features=_features(features, release_version),
    )


def sole_voter(settings: BrokerSettings) -> tuple[VoterSet, Uuid]:
    """The voters of a cluster whose only controller is this node, and the id of its folder."""
    directory_id = formatting.random_uuid(random.SystemRandom())
    return VoterSet((VoterNode(Voter(settings.id, directory_id), (_own_endpoint(settings),)),)), directory_id


def _check_uuid(what: str, text: str) -> Uuid:
    try:
        return uuid_from_text(text)
    except ValueError as problem:
        raise StartError(f"{what} {text} is {problem}; barnabas storage random-uuid makes one.") from None


def _controller_listener(settings: BrokerSettings) -> str:
    return (settings.controller_listener_names or ("CONTROLLER",))[0].upper()


def _own_endpoint(settings: BrokerSettings) -> tuple[str, str, int]:
    name = _controller_listener(settings)
    advertised = parse("advertised.listeners", settings.advertised_listeners or ())
    for address in [*advertised, *parse("listeners", settings.listeners)]:
        if address.name == name and address.port:
            return name, address.host or "localhost", address.port
    return name, "localhost", 9093


def _parse_voters(text: str, listener: str) -> VoterSet:
    nodes = []
    for entry in text.split(","):
        match = _VOTER.fullmatch(entry.strip())
        if match is None:
            raise StartError(f"{entry!r} in --initial-controllers is not ID@HOST:PORT:DIRECTORYID.")
        directory_id = _check_uuid("The directory id", match[4])
        endpoint = (listener, match[2].strip("[]"), int(match[3]))
        nodes.append(VoterNode(Voter(int(match[1]), directory_id), (endpoint,)))
    ids = [node.voter.node_id for node in nodes]
    if len(set(ids)) != len(ids):
        raise StartError(f"--initial-controllers names a node twice: {text}.")
    return VoterSet(tuple(sorted(nodes, key=lambda node: node.voter.node_id)))


def _features(given: Sequence[str], release_version: str | None) -> dict[str, int]:
    levels = dict(BOOTSTRAP_FEATURES)
    if release_version is not None:
        release = ".".join(release_version.split("-")[0].split(".")[:2])
        if release not in RELEASES:
            raise StartError(f"--release-version {release_version} is not known; {', '.join(RELEASES)} are.")
        levels["metadata.version"] = RELEASES[release]
    for entry in given:
        name, _, level = entry.partition("=")
        low, high = KNOWN_RANGES.get(name, (0, -1))
        if not level.isdigit() or not low <= int(level) <= high:
            known = ", ".join(f"{each} {a}-{b}" for each, (a, b) in sorted(KNOWN_RANGES.items()))
            raise StartError(f"--feature {entry} is not NAME=LEVEL of a known feature: {known}.")
        levels[name] = int(level)
    return {name: level for name, level in levels.items() if level and name != "kraft.version"}


def carry_out(plan: Plan, *, ignore_formatted: bool) -> list[str]:
    """Formats the folders; returns what was done, a line each. Raises StartError."""
    disk = _disk()
    done = []
    try:
        for number, root in enumerate(plan.roots):
            if formatting.read_identity(disk, root) is not None:
                if not ignore_formatted:
                    raise StartError(
                        f"{root} is formatted already: --ignore-formatted leaves such folders as they are."
                    )
                done.append(f"{root} is formatted already.")
                continue
            disk.make_directory(root)
            formatting.format_folder(
                disk,
                root,
                cluster_id=plan.cluster_id,
                node_id=plan.settings.id,
                directory_id=plan.directory_id
                if number == 0 and plan.directory_id is not None
                else formatting.random_uuid(random.SystemRandom()),
                voters=plan.voters,
                features=plan.features,
                holds_metadata=number == 0,
                now_ms=int(time.time() * 1000),
            )
            level = plan.features.get("metadata.version")
            done.append(
                f"Formatting {'metadata ' if number == 0 else ''}directory {root} with metadata.version {level}."
            )
    except DiskError as problem:
        raise StartError(folders.unusable(problem.path, problem)) from problem
    except formatting.WrongFolder as problem:
        raise StartError(f"{problem}.") from problem
    finally:
        disk.close()
    return done


def inspect(config: str) -> dict[str, Any]:
    """The identity of each folder, the voters that it knows, and what is wrong. Raises StartError."""
    settings = settings_loader.load(file=config).settings
    disk = _disk()
    roots = [os.path.abspath(path) for path in settings.data_directories]
    found: dict[str, Any] = {"directories": [], "voters": [], "problems": []}
    try:
        for root in roots:
            try:
                properties = formatting.read_identity(disk, root)
            except formatting.WrongFolder as problem:
                properties = None
                found["problems"].append(str(problem))
            if properties is None:
                found["problems"].append(f"{root} is not formatted.")
            elif properties.get("node.id") != str(settings.id):
                found["problems"].append(f"{root} belongs to node {properties.get('node.id')}, not {settings.id}.")
            found["directories"].append({"path": root, "properties": properties or {}})
        ids = {entry["properties"].get("cluster.id") for entry in found["directories"] if entry["properties"]}
        if len(ids) > 1:
            found["problems"].append(f"The folders belong to different clusters: {', '.join(sorted(map(str, ids)))}.")
        found["voters"] = _stored_voters(disk, f"{roots[0]}/{METADATA_TOPIC}-0")
    except DiskError as problem:
        raise StartError(folders.unusable(problem.path, problem)) from problem
    finally:
        disk.close()
    return found


def _stored_voters(disk: OsDisk, directory: str) -> list[str]:
    """As the latest snapshot has them; the log after it may know others."""
    if not disk.exists(directory):
        return []
    snapshots = metadata_snapshot.list_snapshots(disk, directory)
    if not snapshots:
        return []
    name = metadata_snapshot.file_name(*snapshots[-1])
    voters = metadata_snapshot.read(disk, f"{directory}/{name}").voter_set
    return [
        f"{node.voter.node_id}@{node.endpoints[0][1]}:{node.endpoints[0][2]}:{uuid_text(node.voter.directory_id)}"
        for node in voters.nodes
        if node.endpoints
    ]


def _disk() -> OsDisk:
    return OsDisk(lambda callback: callback(), max_open_files=64)
