"""The embedded broker."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from barnabas.client.wire import Client, admin
from barnabas.testing import EmbeddedBroker


def make_topic(broker: EmbeddedBroker, name: str) -> int:
    with Client(broker.bootstrap_servers) as client:
        return admin.create_topic(client, name, partitions=-1, replication_factor=-1).num_partitions


def topics_of(broker: EmbeddedBroker) -> set[str]:
    with Client(broker.bootstrap_servers) as client:
        return set(client.load(None))


def test_data_may_be_a_path(tmp_path: Path) -> None:
    with EmbeddedBroker(data=tmp_path) as broker:
        make_topic(broker, "kept")
        assert broker.data == str(tmp_path)
    with EmbeddedBroker(data=str(tmp_path)) as again:
        assert topics_of(again) == {"kept"}


def test_a_path_called_temporary_is_an_ordinary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with EmbeddedBroker(data=Path("temporary")):
        pass
    assert (tmp_path / "temporary" / "meta.properties").exists()


def test_a_temporary_folder_survives_a_kill_until_the_stop() -> None:
    broker = EmbeddedBroker(data="temporary").start()
    folder = broker.data
    make_topic(broker, "kept")
    broker.kill()
    broker.start()
    try:
        assert broker.data == folder
        assert topics_of(broker) == {"kept"}
    finally:
        broker.stop()
    assert folder is not None
    assert not os.path.exists(folder)


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 on this machine")
def test_the_host_may_be_an_ipv6_address() -> None:
    with EmbeddedBroker(host="::1") as broker:
        assert broker.bootstrap_servers == f"[::1]:{broker.port}"
        assert topics_of(broker) == set()
