"""How internal topics are created: with as many replicas as there are brokers, at most three, unless it is set."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from barnabas.broker.context import Broker
from barnabas.broker.creation import request_for
from barnabas.model.broker_settings import BrokerSettings
from barnabas.model.ids import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

KEY = "offsets.topic.replication.factor"


@pytest.mark.parametrize(
    ("static", "brokers", "replicas"),
    [({}, 1, 1), ({}, 2, 2), ({}, 5, 3), ({KEY: "3"}, 1, 3), ({KEY: "1"}, 3, 1)],
)
def test_replicas_of_the_offsets_topic(static: dict[str, str], brokers: int, replicas: int) -> None:
    settings = BrokerSettings.parse(static)
    broker = SimpleNamespace(settings=settings, static_settings=static, live_brokers=lambda: range(brokers))
    (topic,) = request_for([OFFSETS_TOPIC], cast("Broker", broker)).topics
    assert topic.replication_factor == replicas
    assert topic.num_partitions == settings.offsets_topic_num_partitions


@pytest.mark.parametrize(
    ("static", "brokers", "replicas", "min_in_sync"),
    [
        ({}, 1, 1, "1"),
        ({}, 2, 2, "1"),
        ({}, 3, 3, "2"),
        ({"transaction.state.log.min.isr": "2"}, 2, 2, "2"),
        ({"transaction.state.log.replication.factor": "1"}, 3, 1, "1"),
    ],
)
def test_replicas_of_the_transactions_topic(
    static: dict[str, str], brokers: int, replicas: int, min_in_sync: str
) -> None:
    settings = BrokerSettings.parse(static)
    broker = SimpleNamespace(settings=settings, static_settings=static, live_brokers=lambda: range(brokers))
    (topic,) = request_for([TRANSACTIONS_TOPIC], cast("Broker", broker)).topics
    configs = {config.name: config.value for config in topic.configs}
    assert (topic.replication_factor, configs["min.insync.replicas"]) == (replicas, min_in_sync)


def test_other_topics_are_created_with_the_defaults() -> None:
    (topic,) = request_for(["orders"], cast("Broker", SimpleNamespace())).topics
    assert (topic.num_partitions, topic.replication_factor) == (-1, -1)
