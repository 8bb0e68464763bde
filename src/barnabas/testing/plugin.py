"""The pytest plugin: brokers as fixtures. Nothing of the broker is imported before a test asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from barnabas.testing import EmbeddedBroker


@pytest.fixture
def barnabas_broker() -> Iterator[EmbeddedBroker]:
    """A broker of its own for one test, in memory, on a free port."""
    from barnabas.testing import EmbeddedBroker  # noqa: PLC0415 -- see above

    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def barnabas_session_broker() -> Iterator[EmbeddedBroker]:
    """One broker for the whole run: use topic names of your own."""
    from barnabas.testing import EmbeddedBroker  # noqa: PLC0415 -- see above

    with EmbeddedBroker() as broker:
        yield broker
