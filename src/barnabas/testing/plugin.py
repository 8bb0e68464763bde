"""The pytest plugin: brokers as fixtures. Nothing of the broker is imported before a test asks for one.

``barnabas_settings`` and ``barnabas_session_settings`` exist to be overridden, in a conftest.py or a test module: they
return the settings of ``barnabas_broker`` and ``barnabas_session_broker``. Two, because a setting of one test must not
reach the broker that all tests share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from barnabas.testing import EmbeddedBroker, EmbeddedCluster


@pytest.fixture
def barnabas_settings() -> Mapping[str, object]:
    """Settings of ``barnabas_broker`` by Kafka's names. Override it to change them."""
    return {}


@pytest.fixture
def barnabas_broker(barnabas_settings: Mapping[str, object]) -> Iterator[EmbeddedBroker]:
    """A broker for one test, in memory, on a free port."""
    from barnabas.testing import EmbeddedBroker  # noqa: PLC0415 -- see above

    with EmbeddedBroker(settings=barnabas_settings) as broker:
        yield broker


@pytest.fixture(scope="session")
def barnabas_session_settings() -> Mapping[str, object]:
    """Settings of ``barnabas_session_broker``. Override it in the top conftest.py, with session scope."""
    return {}


@pytest.fixture(scope="session")
def barnabas_session_broker(barnabas_session_settings: Mapping[str, object]) -> Iterator[EmbeddedBroker]:
    """One broker for the whole test run, in memory, on a free port. Tests share its topics."""
    from barnabas.testing import EmbeddedBroker  # noqa: PLC0415 -- see above

    with EmbeddedBroker(settings=barnabas_session_settings) as broker:
        yield broker


@pytest.fixture
def barnabas_cluster_settings() -> Mapping[str, object]:
    """Settings of the brokers of ``barnabas_cluster``. Override it to change them."""
    return {}


@pytest.fixture
def barnabas_cluster(barnabas_cluster_settings: Mapping[str, object]) -> Iterator[EmbeddedCluster]:
    """Three broker processes for one test, on free ports, in a temporary folder."""
    from barnabas.testing import EmbeddedCluster  # noqa: PLC0415 -- see above

    with EmbeddedCluster(brokers=3, settings=barnabas_cluster_settings) as cluster:
        yield cluster
