"""Conditions that tests of compaction wait for."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.testing import EmbeddedBroker
from tests.reliability.raw import wait_until


def is_clean(broker: EmbeddedBroker, topic: str) -> Callable[[], bool]:
    """Whether the log has been cleaned up to its active segment."""
    assert broker._server is not None
    node = broker._server.node
    wait_until(lambda: node.broker_part.compaction is not None, "the cleaner was not started")
    partition = node.broker.partitions.get(topic, 0)
    assert partition is not None
    log = partition.log
    return lambda: log.cleaned_offset == log.bases[-1] and not log.is_being_cleaned
