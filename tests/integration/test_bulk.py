"""Producers of large batches: their buffers grow to hold several requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from barnabas.net.connection import WIDENED_BYTES, WIDEST_BUFFER
from barnabas.net.listener import ConnectionLimits
from barnabas.testing import EmbeddedBroker
from tests.reliability.raw import Raw, batch, frame, produce_request, wait_until

MANY_RECORDS = 100
MANY = batch(*([b"value"] * MANY_RECORDS))


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(data="temporary") as running:
        yield running


@pytest.fixture
def limits(broker: EmbeddedBroker) -> ConnectionLimits:
    assert broker._server is not None
    return broker._server.limits


def test_a_buffer_widens_while_whole_frames_fill_it(
    broker: EmbeddedBroker, limits: ConnectionLimits, new_topic: Callable[[], str]
) -> None:
    topic = new_topic()
    with Raw(broker.port) as raw:
        raw.create(topic)
        one = frame(produce_request(topic, MANY), 9, 0)
        before = limits.buffered_bytes
        raw.send_bytes(one[:-10])
        wait_until(lambda: limits.buffered_bytes == before + 2 * len(one), "a buffer for two frames")
        # The frame's end and a part of the next: the buffer is filled by one whole frame and what has come of another.
        count = 4 * WIDEST_BUFFER // len(one)
        raw.send_bytes(one[-10:] + one * (count - 1))
        replies = [raw.receive_frame() for _ in range(count)]
        assert len(set(replies)) == count  # each has an offset of its own
        assert 2 * len(one) < limits.buffered_bytes - before < 2 * WIDEST_BUFFER
        assert raw.fetch(topic).high_watermark == count * MANY_RECORDS
    wait_until(lambda: limits.buffered_bytes == before, "the buffer given back")


def test_no_buffer_widens_where_there_are_many(
    broker: EmbeddedBroker, limits: ConnectionLimits, new_topic: Callable[[], str]
) -> None:
    topic = new_topic()
    with Raw(broker.port) as raw:
        raw.create(topic)
        one = frame(produce_request(topic, MANY), 9, 0)
        limits.buffered_bytes += WIDENED_BYTES
        before = limits.buffered_bytes
        try:
            raw.send_bytes(one[:-10])
            wait_until(lambda: limits.buffered_bytes == before + 2 * len(one), "a buffer for two frames")
            raw.send_bytes(one[-10:] + one * 500)
            for _ in range(501):
                raw.receive_frame()
            assert limits.buffered_bytes == before + 2 * len(one)
        finally:
            limits.buffered_bytes -= WIDENED_BYTES
