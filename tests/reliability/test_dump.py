"""Kafka's own tools on a folder of ours, where its jars are at hand already; ``make dump`` fetches them."""

from __future__ import annotations

import os

import pytest

from bench.systems import CACHE, unavailable
from tests.reliability import dump


@pytest.mark.slow
def test_kafka_reads_what_barnabas_wrote() -> None:
    reason = unavailable()
    if reason is None and not os.environ.get("KAFKA_LIBS") and not (CACHE / "libs").exists():
        reason = "Kafka's jars are not here: make dump fetches them"
    if reason is not None:
        pytest.skip(reason)
    assert dump.run(quiet=True)[".txnindex"] > 0
