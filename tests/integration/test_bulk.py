"""Producers of large batches: given way to, and received several requests at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from barnabas.net.connection import WIDENED_BYTES, WIDEST_BUFFER
from barnabas.net.courtesy import MANY_RECORDS, PATIENCE, WINDOW, Courtesy
from barnabas.net.listener import ConnectionLimits
from barnabas.testing import EmbeddedBroker
from tests.reliability.raw import Raw, batch, frame, produce_request, wait_until

MANY = batch(*([b"value"] * MANY_RECORDS))


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(data="temporary") as running:
        yield running


@pytest.fixture
def limits(broker: EmbeddedBroker) -> ConnectionLimits:
    assert broker._node is not None
    return broker._node._limits


@pytest.fixture
def yields(limits: ConnectionLimits) -> list[None]:
    seen: list[None] = []
    limits.courtesy = Courtesy(lambda: seen.append(None))
    return seen


def send_together(raw: Raw, topic: str, count: int) -> None:
    raw.send_bytes(frame(produce_request(topic, batch()), 9, 0) * count)
    for _ in range(count):
        raw.receive_frame()


@pytest.mark.parametrize("flush_messages", ["1", str(1 << 62)])  # the ordinary way, and the shortcut
def test_way_is_given_while_nothing_but_large_batches_come(
    broker: EmbeddedBroker, yields: list[None], new_topic: Callable[[], str], flush_messages: str
) -> None:
    topic = new_topic()
    with Raw(broker.port) as bulk, Raw(broker.port) as other:
        bulk.create(topic, flush_messages=flush_messages)
        send_together(bulk, topic, WINDOW + 1)
        for _ in range(PATIENCE):
            bulk.produce(topic, MANY)
        assert not yields
        bulk.produce(topic, MANY)
        assert yields
        other.produce(topic)
        yields.clear()
        for _ in range(PATIENCE):
            bulk.produce(topic, MANY)
            other.produce(topic)
        assert not yields


def test_whoever_waits_for_answers_is_not_made_to_wait(
    broker: EmbeddedBroker, yields: list[None], new_topic: Callable[[], str]
) -> None:
    topic = new_topic()
    with Raw(broker.port) as bulk:
        bulk.create(topic)
        send_together(bulk, topic, WINDOW)
        for _ in range(2 * PATIENCE):
            bulk.produce(topic, MANY)
    assert not yields


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
