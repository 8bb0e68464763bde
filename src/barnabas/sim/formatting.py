"""Formats the disks of a simulated cluster, as ``barnabas storage format --initial-controllers`` does."""

from __future__ import annotations

import random

from barnabas.core.metadata.features import BOOTSTRAP_FEATURES
from barnabas.core.raft.voters import Voter, VoterNode, VoterSet
from barnabas.model.ids import uuid_text
from barnabas.node import format as formatting
from barnabas.sim.clock import START_MS
from barnabas.sim.cluster import CONTROLLER_PORT, DATA, SimNode


def format_all(nodes: list[SimNode], rng: random.Random) -> None:
    cluster_id = uuid_text(formatting.random_uuid(rng))
    directories = {node.node_id: formatting.random_uuid(rng) for node in nodes}
    voters = VoterSet(
        tuple(
            VoterNode(Voter(node.node_id, directories[node.node_id]), (("CONTROLLER", node.host, CONTROLLER_PORT),))
            for node in nodes
        )
    )
    for node in nodes:
        node.cluster_id, node.directory_id = cluster_id, directories[node.node_id]
        node.disk.make_directory(DATA)
        formatting.format_folder(
            node.disk,
            DATA,
            cluster_id=cluster_id,
            node_id=node.node_id,
            directory_id=directories[node.node_id],
            voters=voters,
            features=BOOTSTRAP_FEATURES,
            holds_metadata=True,
            now_ms=START_MS,
        )
