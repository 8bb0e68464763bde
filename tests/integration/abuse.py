"""Shared by the abuse tests: a broker, and the invariants checked after each test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.reliability.process import BrokerProcess
from tests.reliability.raw import Raw, wait_until

MAX_GROWTH_BYTES = 64 << 20


@contextmanager
def unharmed(broker: BrokerProcess, *, bystander_stays: bool = True) -> Iterator[None]:
    """Afterwards the process lives, has not grown, nothing escaped a handler, and another client is served."""
    with Raw(broker.port) as bystander:
        bystander.versions()
        before = broker.resident_bytes
        yield
        assert broker.is_alive, broker.output
        wait_until(lambda: broker.resident_bytes - before < MAX_GROWTH_BYTES, "memory is given back")
        if bystander_stays:
            bystander.versions()
    with Raw(broker.port) as newcomer:
        assert newcomer.versions().error_code == 0
    assert "request failed" not in broker.output, broker.output
    assert "Traceback" not in broker.output, broker.output
