"""The folder and the ports of a local cluster; its processes are in tests/integration."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from barnabas.app.local_cluster import LocalCluster, choose_ports
from barnabas.model.errors import StartError

HOST = "127.0.0.1"


@pytest.fixture
def cluster(tmp_path: Path) -> LocalCluster:
    ports = [(20_001, 20_011), (20_002, 20_012)]  # nothing listens on them in these tests
    return LocalCluster.create(tmp_path / "cluster", brokers=2, settings={"num.partitions": "3"}, ports=ports)


def test_a_cluster_is_found_in_its_folder(cluster: LocalCluster) -> None:
    again = LocalCluster.open(cluster.folder)
    assert again.cluster_id == cluster.cluster_id
    assert again.bootstrap_servers == "127.0.0.1:20001,127.0.0.1:20002"
    assert [again.pid(node_id) for node_id in again.nodes] == [None, None]


def test_a_folder_without_a_cluster_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"There is no cluster in .*: it has no cluster\.json\."):
        LocalCluster.open(tmp_path)


def test_settings_are_changed_for_all_nodes_or_refused(cluster: LocalCluster) -> None:
    cluster.configure({"num.partitions": "7"})
    texts = [path.read_text() for path in sorted(cluster.folder.glob("node-*.properties"))]
    assert all("num.partitions=7\n" in text and "num.partitions=3" not in text for text in texts)
    assert "node.id=2\n" in texts[1]
    with pytest.raises(StartError, match="Unknown setting nonsense"):
        cluster.configure({"nonsense": "1"})
    assert [path.read_text() for path in sorted(cluster.folder.glob("node-*.properties"))] == texts


def test_one_process_keeps_a_cluster_up(cluster: LocalCluster) -> None:
    assert cluster.keeper() is None
    assert cluster.lock()
    assert not LocalCluster.open(cluster.folder).lock()
    assert LocalCluster.open(cluster.folder).keeper() == os.getpid()


def test_ports_are_in_a_row_or_refused() -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match=f"Cannot use port {port} of {HOST}: another process listens there"):
            choose_ports(HOST, 1, port)
    with pytest.raises(StartError, match="ports end at 65535"):
        choose_ports(HOST, 3, 65_534)
