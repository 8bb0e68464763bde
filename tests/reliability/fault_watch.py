"""Without faults nothing may happen: a cluster that idles, or whose machine is busy, fences and elects nobody."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.client.wire.errors import ClientError
from barnabas.model.errors import ApiError
from tests.reliability import fault_replicas
from tests.reliability.fault_hosts import BROKERS, Hosts
from tests.reliability.fault_view import ClusterView

LOOK_S = 0.25
START_TIMEOUT_S = 120.0


class State(NamedTuple):
    """What changes when a controller or leader is elected, or a broker fenced."""

    raft_epoch: int
    leader_epochs: tuple[int, ...]
    in_sync: tuple[tuple[int, ...], ...]


def run(hosts: Hosts, minutes: float, busy: int) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="barnabas-watch-", ignore_cleanup_errors=True) as folder:
        cluster = hosts.create(Path(folder), {})
        try:
            for node in BROKERS:
                hosts.start(cluster, node)
            for node in BROKERS:
                cluster.wait_for(node, START_TIMEOUT_S)
            view = ClusterView(cluster)
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
            admin.create_topics([NewTopic("idle", 12, 3)])["idle"].result(60)
            view.wait_until_healthy(START_TIMEOUT_S)
            with _busy_loops(busy):
                changes = _watch(view, 60 * minutes)
            for node in BROKERS:
                print(f"node {node}: {cluster.log_path(node).read_text(errors='replace')[-2000:]}")
            return changes + list(fault_replicas.tracebacks(cluster))
        finally:
            for node in BROKERS:
                cluster.kill(node)


@contextmanager
def _busy_loops(count: int) -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for each in loops:
            each.kill()
            each.wait()


def _watch(view: ClusterView, seconds: float) -> list[str]:
    began_s = time.monotonic()
    before = _state(view)
    changes: list[str] = []
    longest_s = 0.0
    while (now_s := time.monotonic()) < began_s + seconds:
        time.sleep(LOOK_S)
        try:
            after = _state(view)
        except (ClientError, ApiError, OSError, TimeoutError) as problem:
            changes.append(f"{now_s - began_s:.1f} s: no answer: {problem}")
            continue
        longest_s = max(longest_s, time.monotonic() - now_s - LOOK_S)
        if after != before:
            changes.append(f"{now_s - began_s:.1f} s: {before} became {after}")
            print(changes[-1], flush=True)
        before = after
    print(f"watched for {seconds:.0f} s: {len(changes)} changes; the slowest answer took {longest_s:.2f} s")
    return changes


def _state(view: ClusterView) -> State:
    partitions = [each for topic in view.topics().values() for each in topic.partitions.values()]
    return State(
        view.raft_epoch(),
        tuple(each.leader_epoch for each in partitions),
        tuple(tuple(sorted(each.in_sync_replicas)) for each in partitions),
    )
