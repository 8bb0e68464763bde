"""Clusters of three brokers under measurement: CPU and memory are those of all three together."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from typing import Self

from barnabas.app.local_cluster import LocalCluster
from barnabas.net.local_ports import free_ports
from bench.systems import SHIPPED_FLAGS, System, answers, libraries

BROKERS = 3
HOST = "127.0.0.1"
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
SETTINGS = {
    "num.partitions": "8",
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
}


class Cluster(System):
    """Brokers have the ids 1 to 3."""

    def __init__(self) -> None:
        super().__init__()
        self.pids: dict[int, int] = {}
        self._spent_s = 0.0
        """CPU of processes that are gone."""

    @property
    def servers(self) -> str:
        raise NotImplementedError

    def cpu_s(self) -> float:
        return self._spent_s + sum(_cpu_s(pid) for pid in self.pids.values())

    def memory_mb(self) -> float:
        texts = (Path(f"/proc/{pid}/status").read_text() for pid in self.pids.values())
        return sum(int(text.split("VmRSS:")[1].split()[0]) for text in texts) / 1024

    def start_broker(self, broker: int) -> None:
        raise NotImplementedError

    def kill_broker(self, broker: int) -> None:
        raise NotImplementedError

    def _forget(self, broker: int) -> None:
        self._spent_s += _cpu_s(self.pids.pop(broker))


class BarnabasCluster(Cluster):
    name = "barnabas"

    def start(self, *, fsync: bool = False) -> Self:
        found = free_ports(HOST, 2 * BROKERS)
        ports = list(zip(found[:BROKERS], found[BROKERS:], strict=True))
        more = {"barnabas.durable": "true"} if fsync else {}
        self._cluster = LocalCluster.create(
            self.folder / "cluster", brokers=BROKERS, settings={**SETTINGS, **more}, ports=ports
        )
        self._cluster.start_all()
        self.pids = {node: self._cluster.pid(node) or 0 for node in self._cluster.nodes}
        return self

    @property
    def servers(self) -> str:
        return self._cluster.bootstrap_servers

    def start_broker(self, broker: int) -> None:
        self._cluster.start(broker)
        self._cluster.wait_for(broker)
        self.pids[broker] = self._cluster.pid(broker) or 0

    def kill_broker(self, broker: int) -> None:
        self._forget(broker)
        self._cluster.kill(broker)

    def _end(self, number: int) -> None:
        for broker in self._cluster.nodes:
            self._cluster.kill(broker)


class KafkaCluster(Cluster):
    name = "kafka"

    def start(self, *, fsync: bool = False) -> Self:
        self._libs = libraries()
        found = free_ports(HOST, 2 * BROKERS)
        self._ports = dict(enumerate(found[:BROKERS], 1))
        self._controller_ports = dict(enumerate(found[BROKERS:], 1))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        for broker in self._ports:
            self._format(broker, fsync=fsync)
        for broker in self._ports:
            self._launch(broker)
        for broker in self._ports:
            self._wait_for(broker)
        return self

    @property
    def servers(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self._ports.values())

    def start_broker(self, broker: int) -> None:
        self._launch(broker)
        self._wait_for(broker)

    def kill_broker(self, broker: int) -> None:
        self._forget(broker)
        self._processes[broker].kill()
        self._processes[broker].wait()

    def _settings(self, broker: int) -> Path:
        return self.folder / f"{broker}.properties"

    def _format(self, broker: int, *, fsync: bool) -> None:
        voters = ",".join(f"{node}@{HOST}:{port}" for node, port in self._controller_ports.items())
        settings = {
            "process.roles": "broker,controller",
            "node.id": str(broker),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://{HOST}:{self._ports[broker]},CONTROLLER://{HOST}:{self._controller_ports[broker]}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.folder / f"data-{broker}"),
            **SETTINGS,
            **({"log.flush.interval.messages": "1"} if fsync else {}),
        }
        self._settings(broker).write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        words = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._settings(broker))]
        subprocess.run(["java", "-cp", f"{self._libs}/*", *words], check=True, capture_output=True)

    def _launch(self, broker: int) -> None:
        command = ["java", *SHIPPED_FLAGS.split(), "-cp", f"{self._libs}/*", "kafka.Kafka", str(self._settings(broker))]
        with (self.folder / f"out-{broker}").open("ab") as output:
            self._processes[broker] = subprocess.Popen(command, stdout=output, stderr=output)
        self.pids[broker] = self._processes[broker].pid

    def _wait_for(self, broker: int) -> None:
        deadline_s = time.monotonic() + 120
        while not answers(self._ports[broker]):
            if time.monotonic() > deadline_s or self._processes[broker].poll() is not None:
                raise RuntimeError((self.folder / f"out-{broker}").read_text()[-2000:])
            time.sleep(0.05)

    def _end(self, number: int) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait(120)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100
