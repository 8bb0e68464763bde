"""Counters of a running broker, over the wire and on the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from barnabas.client.wire import BrokerError, Client, UnsupportedApi, admin
from barnabas.client.wire.data import fetch
from barnabas.client.wire.metrics import describe_metrics
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.testing import EmbeddedBroker
from barnabas.wire.api.describe_metrics import ApiMetrics
from tests.unit.cli.command_line import run
from tests.unit.client.fake_broker import FakeBroker, offered


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        yield broker.bootstrap_servers


def metrics(bootstrap: str) -> dict[str, ApiMetrics]:
    with Client(bootstrap) as client:
        return {api.name: api for api in describe_metrics(client)}


def produce(bootstrap: str, topic: str) -> None:
    run("produce", topic, "--message", "x" * 1000, "-b", bootstrap)


def test_requests_errors_bytes_and_times_are_counted(bootstrap: str) -> None:
    produce(bootstrap, "hello")
    with Client(bootstrap) as client:
        fetch(client, {TopicPartition("hello", 0): 0})
        with pytest.raises(BrokerError):
            admin.create_partitions(client, "missing", 3)
    found = metrics(bootstrap)
    produced, fetched, failed = found["Produce"], found["Fetch"], found["CreatePartitions"]
    assert (produced.requests, produced.refused, produced.errors) == (1, 0, [])
    assert produced.bytes_in > 1000 > produced.bytes_out > 0
    assert fetched.requests == 1
    assert fetched.bytes_out > 1000 > fetched.bytes_in > 0
    assert [(each.code, each.count) for each in failed.errors] == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 1)]
    assert min(api.handled_ns for api in (produced, fetched, failed)) > 0
    assert found["DeleteGroups"].requests == 0


def test_a_fetch_that_waits_is_parked(bootstrap: str) -> None:
    produce(bootstrap, "hello")
    with Client(bootstrap) as client:
        fetch(client, {TopicPartition("hello", 0): 1})
    assert metrics(bootstrap)["Fetch"].parked_ns > 0


def test_metrics_count_themselves(bootstrap: str) -> None:
    assert metrics(bootstrap)["DescribeMetrics"].requests == 1
    second = metrics(bootstrap)["DescribeMetrics"]
    assert (second.requests, second.errors) == (2, [])
    with Client(bootstrap) as client:
        assert [api.name for api in describe_metrics(client, [18, 10000])] == ["ApiVersions", "DescribeMetrics"]


def test_clients_are_not_offered_the_api(bootstrap: str) -> None:
    with Client(bootstrap) as client:
        assert 10000 not in client.any_node().versions


def test_the_command_prints_a_table_and_json(bootstrap: str) -> None:
    produce(bootstrap, "hello")
    run("topic", "alter", "missing", "--partitions", "3", "-b", bootstrap, code=1)
    lines = run("broker", "metrics", "-b", bootstrap).stdout.splitlines()
    columns = re.split(r" {2,}", lines[0])
    assert columns == ["API", "REQUESTS", "REFUSED", "ERRORS", "BYTES IN", "BYTES OUT", "HANDLER US", "PARKED MS"]
    rows = {line.split()[0]: line.split()[1:] for line in lines[1:]}
    assert rows["Produce"][:3] == ["1", "0", "0"]
    assert rows["CreatePartitions"][:3] == ["1", "0", "1"]
    assert "DeleteGroups" not in rows
    apis = {api["api"]: api for api in json.loads(run("broker", "metrics", "--json", "-b", bootstrap).stdout)}
    assert apis["CreatePartitions"]["errors"] == {"UNKNOWN_TOPIC_OR_PARTITION": 1}
    assert apis["Produce"]["requests"] == 1
    assert apis["DeleteGroups"]["requests"] == 0


def test_a_broker_that_closes_the_connection_does_not_serve_metrics() -> None:
    """Kafka closes the connection of a client that sends an API key that it does not know."""
    with FakeBroker(lambda key, _version, _body: offered() if key == 18 else None) as kafka:
        with Client(kafka.address) as client, pytest.raises(UnsupportedApi):
            describe_metrics(client)
        refused = run("broker", "metrics", "-b", kafka.address, code=1)
    assert refused.stderr == f"Error: The broker at {kafka.address} does not serve Barnabas's metrics.\n"
