"""A cluster of real broker processes for tests of failover."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from barnabas.app.link_proxy import CLIENT, LinkProxy
from barnabas.app.local_cluster import START_TIMEOUT_S, LocalCluster
from barnabas.client.wire import Client
from barnabas.client.wire.connection import ConnectionSettings
from barnabas.client.wire.errors import ClientError
from barnabas.model.errors import ApiError, StartError
from barnabas.model.ids import METADATA_TOPIC
from barnabas.net.local_ports import free_ports
from barnabas.wire.api.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)

HOST = "127.0.0.1"
LOOK_S = 0.05
IMPATIENT = ConnectionSettings(connect_timeout_s=1.0, request_timeout_s=2.0)
"""For questions that another broker answers as well: one that is paused does not answer at all."""

Known = tuple[int, int]
"""(epoch, leader) as a broker knows them."""


class EmbeddedCluster:
    """Several brokers, each a process of its own, with everything in one folder.

    ``data``: a folder that is kept; None: a temporary one that is removed at the end. ``settings``: Kafka's names and
    values, for every broker. ``folders``: how many data folders each has. Brokers have the ids 1, 2, 3 and so on.

        with EmbeddedCluster(brokers=3) as cluster:
            producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
            cluster.kill(cluster.leader_of("orders", 0))
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        data: str | Path | None = None,
        settings: Mapping[str, object] | None = None,
        folders: int = 1,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster of {brokers} brokers")
        self._brokers = brokers
        self._folders = folders
        self._data = None if data is None else Path(data)
        self._settings = {key: _text(value) for key, value in (settings or {}).items()}
        self._temporary: Path | None = None
        self._proxy: LinkProxy | None = None
        self._cluster: LocalCluster | None = None

    # The whole

    def start(self) -> Self:
        """Returns when every broker serves. Raises StartError."""
        if self._data is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="barnabas-cluster-"))
        self._proxy = LinkProxy(HOST)
        found = free_ports(HOST, 2 * self._brokers)
        ports = list(zip(found[: self._brokers], found[self._brokers :], strict=True))
        advertised = [
            (self._proxy.listen(number, port), self._proxy.listen(number, controller_port))
            for number, (port, controller_port) in enumerate(ports, 1)
        ]
        folder = self._temporary or self._data
        assert folder is not None
        self._cluster = LocalCluster.create(
            folder,
            brokers=self._brokers,
            settings=self._settings,
            folders=self._folders,
            host=HOST,
            ports=ports,
            advertised=advertised,
        )
        try:
            self._cluster.start_all()
        except StartError:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        if self._proxy is not None:
            self._proxy.heal()
        if self._cluster is not None:
            self._cluster.stop_all()
        if self._proxy is not None:
            self._proxy.close()
            self._proxy = None
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        return self._running.bootstrap_servers

    @property
    def controller_servers(self) -> str:
        """Where the controllers listen: controller.quorum.bootstrap.servers of a node that joins."""
        return self._running.controller_servers

    @property
    def cluster_id(self) -> str:
        return self._running.cluster_id

    @property
    def brokers(self) -> list[int]:
        return list(self._running.nodes)

    def data_folders(self, broker: int) -> list[Path]:
        return self._running.data_folders(broker, self._folders)

    @property
    def folder(self) -> Path:
        return self._running.folder

    # Faults

    def kill(self, broker: int) -> None:
        """kill -9."""
        self._running.kill(broker)

    def stop_broker(self, broker: int) -> None:
        """A clean stop, which hands over leadership first."""
        self._running.stop(broker)

    def pause(self, broker: int) -> None:
        """The process stands still (SIGSTOP) and keeps its connections."""
        self._running.pause(broker)

    def resume(self, broker: int) -> None:
        self._running.resume(broker)

    def restart(self, broker: int, timeout_s: float = START_TIMEOUT_S) -> None:
        """Starts a broker that was killed or stopped, and waits until it serves; stops it first where it runs."""
        self._running.resume(broker)
        self._running.stop(broker)
        self.start_broker(broker)
        self._running.wait_for(broker, timeout_s)

    def start_broker(self, broker: int) -> None:
        """Starts a broker and does not wait."""
        self._running.start(broker)

    def wait_for(self, broker: int, timeout_s: float = START_TIMEOUT_S) -> None:
        """Until the broker serves."""
        self._running.wait_for(broker, timeout_s)

    def isolate(self, broker: int, *, from_clients: bool = False) -> None:
        """Cuts the links between a broker and the others, in both directions."""
        assert self._proxy is not None
        others = [other for other in self.brokers if other != broker] + ([CLIENT] if from_clients else [])
        self._proxy.cut([(broker, other) for other in others] + [(other, broker) for other in others])

    def cut(self, sender: int, receiver: int) -> None:
        """Nothing that one broker sends reaches the other; the way back stays open."""
        assert self._proxy is not None
        self._proxy.cut([(sender, receiver)])

    def heal(self) -> None:
        """Every link works again."""
        assert self._proxy is not None
        self._proxy.heal()

    # Looking

    def is_running(self, broker: int) -> bool:
        return self._running.is_running(broker)

    def leader_of(self, topic: str, partition: int = 0, timeout_s: float = 30.0) -> int:
        """The broker that leads a partition; waits for one that runs."""

        def ask(client: Client) -> Known:
            info = client.load([topic])[topic].partitions[partition]
            return info.leader_epoch, info.leader

        return self._ask(ask, f"{topic}-{partition} has no leader that runs", timeout_s)

    def controller(self, timeout_s: float = 30.0) -> int:
        """The node whose controller is active."""

        def ask(client: Client) -> Known:
            wanted = DescribeQuorumRequestTopicData(METADATA_TOPIC, [DescribeQuorumRequestPartitionData(0)])
            reply = client.call(DescribeQuorumRequest([wanted]), DescribeQuorumResponse)
            found = reply.topics[0].partitions[0]
            return found.leader_epoch, found.leader_id

        return self._ask(ask, "no node that runs is the active controller", timeout_s)

    def _ask(self, question: Callable[[Client], Known], otherwise: str, timeout_s: float) -> int:
        """Asks every broker, and believes the one with the highest epoch: one that is cut off knows an older one.

        Again until that is a broker that runs.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            known = [answer for address in self._live_servers() if (answer := self._answer(question, address))]
            _, node = max(known, default=(-1, -1))
            if node in self._running.nodes and self.is_running(node):
                return node
            if time.monotonic() >= deadline_s:
                raise TimeoutError(f"{otherwise} (last answer: {node})")
            time.sleep(LOOK_S)

    @staticmethod
    def _answer(question: Callable[[Client], Known], address: str) -> Known | None:
        with (
            contextlib.suppress(ClientError, ApiError, KeyError, IndexError),
            Client(address, IMPATIENT, timeout_s=IMPATIENT.request_timeout_s) as client,
        ):
            return question(client)
        return None

    def _live_servers(self) -> list[str]:
        return [node.address for node_id, node in self._running.nodes.items() if self.is_running(node_id)]

    @property
    def _running(self) -> LocalCluster:
        if self._cluster is None:
            raise RuntimeError("the cluster is not running: use it as a context manager, or call start()")
        return self._cluster


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
