"""The pytest fixtures of the package, in a user's test suite."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

COUNT = """
from barnabas.client.wire import Client, admin

def partitions(broker):
    with Client(broker.bootstrap_servers) as client:
        name = f"topic-{len(client.load(None))}"
        return admin.create_topic(client, name, partitions=-1, replication_factor=-1).num_partitions
"""


def check(pytester: pytest.Pytester, suite: str, conftest: str = "") -> None:
    pytester.makeconftest(conftest)
    pytester.makepyfile(counting=COUNT, test_suite=f"import pytest\nfrom counting import partitions\n{suite}")
    passed = suite.count("def test_")
    pytester.runpytest_subprocess("-p", "no:randomly", "-q").assert_outcomes(passed=passed)


def test_settings_of_the_broker_of_a_test_can_be_overridden(pytester: pytest.Pytester) -> None:
    check(
        pytester,
        """
@pytest.fixture
def barnabas_settings():
    return {"num.partitions": 3}

def test_override(barnabas_broker):
    assert partitions(barnabas_broker) == 3

@pytest.mark.parametrize("barnabas_settings", [{"num.partitions": 5}])
def test_parameter(barnabas_broker):
    assert partitions(barnabas_broker) == 5

def test_shared_broker_is_unaffected(barnabas_session_broker):
    assert partitions(barnabas_session_broker) == 1
""",
    )


def test_settings_of_the_session_broker_can_be_overridden(pytester: pytest.Pytester) -> None:
    check(
        pytester,
        """
def test_first(barnabas_session_broker):
    assert partitions(barnabas_session_broker) == 7

def test_shared(barnabas_session_broker, barnabas_broker):
    assert partitions(barnabas_session_broker) == 7
    assert partitions(barnabas_broker) == 1
""",
        """
import pytest

@pytest.fixture(scope="session")
def barnabas_session_settings():
    return {"num.partitions": 7}
""",
    )
