"""Broker settings changed while the broker runs, and their effect."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from barnabas.app import connection_limits
from barnabas.testing import EmbeddedBroker
from tests.reliability.raw import Raw, wait_until

UNLIMITED = (1 << 31) - 1


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(data=str(tmp_path)) as running:
        yield running


def alter(broker: EmbeddedBroker, key: str, value: str | None) -> None:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(key, value or "", incremental_operation=operation)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(60)


def test_a_limit_of_connections_holds_at_once_and_after_a_restart(tmp_path: Path, broker: EmbeddedBroker) -> None:
    assert broker._server is not None
    limits = broker._server.limits
    assert limits.max_connections_per_ip == UNLIMITED
    alter(broker, "max.connections.per.ip", "3")
    assert limits.max_connections_per_ip == 3
    wait_until(lambda: not limits.open, "the admin's connections are gone")
    with Raw(broker.port) as one, Raw(broker.port) as two, Raw(broker.port) as three, Raw(broker.port) as four:
        for served in (one, two, three):
            served.versions()
        assert four.is_closed()
    broker.stop()
    with EmbeddedBroker(data=str(tmp_path)) as again:
        assert again._server is not None
        assert again._server.limits.max_connections_per_ip == 3
        alter(again, "max.connections.per.ip", None)
        assert again._server.limits.max_connections_per_ip == UNLIMITED


def test_names_of_hosts_are_looked_up_beside_the_loop(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    assert broker._server is not None
    limits, answer, done = broker._server.limits, threading.Event(), threading.Event()
    real = connection_limits.limits_by_address

    def look_up(overrides: str) -> dict[str, int]:
        if overrides.startswith("slow"):
            answer.wait(60)
            done.set()
            return {"127.0.0.9": 9}
        return real(overrides)

    monkeypatch.setattr(connection_limits, "limits_by_address", look_up)
    alter(broker, "max.connections.per.ip.overrides", "slow.invalid:9")  # answered while it is looked up
    assert limits.max_connections_per_ip_overrides == {}
    alter(broker, "max.connections.per.ip.overrides", "127.0.0.1:55")
    wait_until(lambda: limits.max_connections_per_ip_overrides == {"127.0.0.1": 55}, "the second value is taken")
    answer.set()
    assert done.wait(60)
    alter(broker, "max.connections.per.ip.overrides", "127.0.0.1:5x")  # cannot be told before it is tried
    alter(broker, "max.connections.per.ip.overrides", "127.0.0.2:5")
    wait_until(lambda: limits.max_connections_per_ip_overrides == {"127.0.0.2": 5}, "the last value is taken")


def test_the_cleaner_obeys(broker: EmbeddedBroker) -> None:
    assert broker._server is not None
    node = broker._server.node
    wait_until(lambda: node.broker_part.compaction is not None, "a cleaner")
    alter(broker, "log.cleaner.backoff.ms", "123")
    alter(broker, "log.cleaner.io.max.bytes.per.second", "1000000")
    assert node.broker_part.compaction.cleaner._limits.backoff_ms == 123
    assert node.broker_part.compaction._throttle._seconds_per_byte == 1e-6
    resource = ConfigResource(ResourceType.BROKER, "1")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    entry = admin.describe_configs([resource])[resource].result(60)["log.cleaner.backoff.ms"]
    assert (entry.value, entry.is_read_only) == ("123", False)


def test_the_memory_of_silent_producers(broker: EmbeddedBroker) -> None:
    assert broker._server is not None
    node = broker._server.node
    with Raw(broker.port) as raw:
        raw.create("before")
        alter(broker, "producer.id.expiration.ms", "5000")
        raw.create("after")
    assert {log.producer_id_expiration_ms for log in node.logs} == {5000}


def test_settings_of_kafka_that_mean_nothing_here_are_taken(broker: EmbeddedBroker) -> None:
    alter(broker, "num.io.threads", "16")
