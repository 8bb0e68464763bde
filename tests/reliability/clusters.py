"""Brokers as processes that can be killed and started again: Barnabas, or Apache Kafka for comparison.

Both have one broker or three, in one folder. With proxies, ``advertised`` are the ports that clients are sent to.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Protocol

from barnabas.app.local_cluster import LocalCluster
from barnabas.net.local_ports import free_ports
from bench.systems import answers, libraries

HOST = "127.0.0.1"
START_TIMEOUT_S = 120.0
LOOK_S = 0.02
SYSTEMS = ("barnabas", "kafka")
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
JVM = ("-Xmx512m", "-XX:TieredStopAtLevel=1")

SHORT_WAITS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.num.partitions": "8",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
"""Nothing here is about waiting for more members; few partitions, so that a restarted broker has them soon."""


class Cluster(Protocol):
    @property
    def bootstrap_servers(self) -> str: ...

    def start(self, node_id: int) -> None:
        """Starts the process and returns at once."""

    def wait_for(self, node_id: int, timeout_s: float) -> None:
        """Until clients are served."""

    def kill(self, node_id: int) -> None:
        """kill -9, and waits for the end."""

    def log_path(self, node_id: int) -> Path: ...


class KafkaCluster:
    """Apache Kafka with combined nodes; its jars are fetched once with Maven."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str],
        ports: Sequence[tuple[int, int]],
        advertised: Sequence[int],
    ) -> None:
        self._folder = folder
        self._ports = {number + 1: pair for number, pair in enumerate(ports)}
        self._advertised = dict(enumerate(advertised, 1))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._classpath = f"{libraries()}/*"
        for node_id in self._ports:
            self._format(node_id, settings)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self._advertised.values())

    def log_path(self, node_id: int) -> Path:
        return self._folder / f"kafka-{node_id}.log"

    def _settings_path(self, node_id: int) -> Path:
        return self._folder / f"kafka-{node_id}.properties"

    def _format(self, node_id: int, settings: Mapping[str, str]) -> None:
        port, controller_port = self._ports[node_id]
        replicas = str(len(self._ports))
        values = {
            "node.id": str(node_id),
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{self._advertised[node_id]}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.voters": ",".join(f"{each}@{HOST}:{two}" for each, (_, two) in self._ports.items()),
            "log.dirs": str(self._folder / f"kafka-data-{node_id}"),
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": str(min(2, len(self._ports))),
            "min.insync.replicas": str(min(2, len(self._ports))),
            # A broker that was killed may not register again before its session ends: 9 s unless told.
            "broker.session.timeout.ms": "2000",
            "broker.heartbeat.interval.ms": "500",
            **settings,
        }
        path = self._settings_path(node_id)
        path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        command = [*self._java("kafka.tools.StorageTool"), "format", "-t", CLUSTER_ID, "-c", str(path)]
        subprocess.run(command, check=True, capture_output=True)

    def _java(self, name: str) -> list[str]:
        return ["java", *JVM, "-cp", self._classpath, name]

    def start(self, node_id: int) -> None:
        with self.log_path(node_id).open("ab") as output:
            command = [*self._java("kafka.Kafka"), str(self._settings_path(node_id))]
            self._processes[node_id] = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def wait_for(self, node_id: int, timeout_s: float = START_TIMEOUT_S) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not answers(self._ports[node_id][0]):
            if time.monotonic() > deadline_s or self._processes[node_id].poll() is not None:
                raise RuntimeError(self.log_path(node_id).read_text(errors="replace")[-2000:])
            time.sleep(LOOK_S)

    def kill(self, node_id: int) -> None:
        process = self._processes.pop(node_id, None)
        if process is not None:
            process.kill()
            process.wait()


def create(
    system: str,
    folder: Path,
    brokers: int,
    settings: Mapping[str, str],
    *,
    ports: Sequence[tuple[int, int]] | None = None,
    advertised: Sequence[int] | None = None,
) -> Cluster:
    """``ports`` are (for clients, for controllers) of each broker; ``advertised`` those for clients of proxies."""
    found = free_ports(HOST, 2 * brokers)
    ports = ports or list(zip(found[:brokers], found[brokers:], strict=True))
    shown = advertised or [port for port, _ in ports]
    folder.mkdir(parents=True, exist_ok=True)
    if system == "kafka":
        return KafkaCluster(folder, {**SHORT_WAITS, **settings}, ports, shown)
    pairs = [(port, two) for port, (_, two) in zip(shown, ports, strict=True)]
    return LocalCluster.create(
        folder, brokers=brokers, settings={**SHORT_WAITS, **settings}, ports=ports, advertised=pairs
    )


@contextmanager
def running(cluster: Cluster, brokers: int) -> Iterator[Cluster]:
    """All brokers, started; killed at the end."""
    ids = range(1, brokers + 1)
    try:
        for node_id in ids:
            cluster.start(node_id)
        for node_id in ids:
            cluster.wait_for(node_id, START_TIMEOUT_S)
        yield cluster
    except BaseException:
        _keep_logs(cluster, brokers)
        raise
    finally:
        for node_id in ids:
            cluster.kill(node_id)


def _keep_logs(cluster: Cluster, brokers: int) -> None:
    """Where FAILED_LOGS names a folder: what the brokers wrote before a failure."""
    folder = os.environ.get("FAILED_LOGS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for node_id in range(1, brokers + 1):
            source = cluster.log_path(node_id)
            if source.exists():
                (Path(folder) / source.name).write_bytes(source.read_bytes())


def interrupt_on_sigterm() -> None:
    """So that what a command has started is ended then too. Once: that must not be interrupted itself."""

    def interrupt(number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt(signal.Signals(number).name)

    signal.signal(signal.SIGTERM, interrupt)
