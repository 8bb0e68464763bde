"""The tests of clients run against one broker and against a cluster of three, whose topics have three replicas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from barnabas.testing import EmbeddedBroker, EmbeddedCluster

SETTINGS = {"log.retention.check.interval.ms": 86_400_000}
"""Tests use old timestamps: retention must not come in between."""


@pytest.fixture(scope="session")
def single_broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(data="temporary", settings=SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="session", params=[1, 3], ids=["one", "three"])
def shared_broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """What serves the tests of a run; each uses topics of its own."""
    if request.param == 1:
        yield request.getfixturevalue("single_broker")
    else:
        with EmbeddedCluster(brokers=request.param, settings=SETTINGS) as cluster:
            yield cast("EmbeddedBroker", cluster)  # tests of clients need its addresses only
