"""The files of a stopped cluster: replicas must be equal, and logs of the nodes free of tracebacks."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from barnabas.app.local_cluster import LocalCluster

_START = struct.Struct(">qi")
"""Base offset and length of a batch; the length counts from after itself."""


def batches(folder: Path) -> dict[int, bytes]:
    """Base offset -> the bytes of the batch, of one partition."""
    found: dict[int, bytes] = {}
    for path in sorted(folder.glob("*.log")):
        content = path.read_bytes()
        position = 0
        while position + _START.size <= len(content):
            offset, length = _START.unpack_from(content, position)
            if length <= 0:
                break
            end = position + _START.size + length
            found[offset] = content[position:end]
            position = end
    return found


def differences(cluster: LocalCluster, topic: str, partitions: int, ends: dict[int, int]) -> Iterator[str]:
    """Where a replica lacks a batch below the end that clients have read, or has another one there."""
    for partition in range(partitions):
        replicas = {node: batches(cluster.folder / f"node-{node}" / f"{topic}-{partition}") for node in cluster.nodes}
        first = min(replicas)
        for node, found in replicas.items():
            yield from _difference(f"{topic}-{partition}", (first, replicas[first]), (node, found), ends[partition])


def _difference(
    name: str, one: tuple[int, dict[int, bytes]], other: tuple[int, dict[int, bytes]], end: int
) -> Iterator[str]:
    offsets = sorted(offset for offset in one[1].keys() | other[1].keys() if offset < end)
    for offset in offsets:
        if one[1].get(offset) != other[1].get(offset):
            has = [node for node, found in (one, other) if offset in found]
            yield f"replicas differ: {name} at {offset} on nodes {one[0]} and {other[0]} (has it: {has})"
            return


def tracebacks(cluster: LocalCluster) -> Iterator[str]:
    """Lines of the nodes' logs that nobody should see."""
    for node in cluster.nodes:
        lines = cluster.log_path(node).read_text(errors="replace").splitlines()
        bad = [line for line in lines if "Traceback" in line or '"level": "error"' in line or "nvariant" in line]
        if bad:
            yield f"node {node} logged {len(bad)} errors, the first: {bad[0][:400]}"
