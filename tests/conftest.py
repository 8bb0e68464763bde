"""Fixtures that all tests share."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings

from barnabas.testing import EmbeddedBroker

# No timing decides a test: neither an example's nor that of the making of examples.
settings.register_profile("patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

_numbers = itertools.count()


@pytest.fixture(scope="session")
def shared_broker() -> Iterator[EmbeddedBroker]:
    """One broker on disk for the tests of a run that need no other; each uses topics of its own."""
    # Tests use old timestamps: retention must not come in between.
    with EmbeddedBroker(data="temporary", settings={"log.retention.check.interval.ms": 86_400_000}) as broker:
        yield broker


@pytest.fixture
def new_topic(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Names that no other test uses, all of one length."""
    return lambda: f"t{next(_numbers):05}-{abs(hash(request.node.nodeid)) % 10**8:08}"
