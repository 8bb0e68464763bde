"""Producers of large batches: made way for, and received several requests at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from barnabas.net.connection import WIDENED_BYTES, WIDEST_BUFFER
from barnabas.net.courtesy import MANY_RECORDS, PATIENCE, Courtesy
from barnabas.net.listener import ConnectionLimits
from barnabas.net.pace import WINDOW
from barnabas.testing import EmbeddedBroker
from tests.reliability.raw import Raw, batch, frame, produce_request, wait_until

ONE = batch()
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
def way_made(limits: ConnectionLimits) -> list[bool]:
    """Each time that way is made, and (False) that there is no more need to."""
    seen: list[bool] = []

    def wait_for_turn(wanted: bool) -> bool:
        seen.append(wanted)
        return True

    limits.courtesy = Courtesy(None, wait_for_turn)
    return seen


def send_together(raw: Raw, topic: str, count: int, records: bytes = ONE) -> list[bytes]:
    raw.send_bytes(frame(produce_request(topic, records), 9, 0) * count)
    return [raw.receive_frame() for _ in range(count)]


def is_gathering(limits: ConnectionLimits) -> bool:
    return any(connection._pace._gathering is not None for connection in limits.open)


@pytest.mark.parametrize("flush_messages", ["1", str(1 << 62)])  # the ordinary way, and the shortcut
def test_way_is_made_while_nothing_but_large_batches_come(
    broker: EmbeddedBroker,
    limits: ConnectionLimits,
    way_made: list[bool],
    new_topic: Callable[[], str],
    flush_messages: str,
) -> None:
    topic = new_topic()
    with Raw(broker.port) as bulk, Raw(broker.port) as other:
        bulk.create(topic, flush_messages=flush_messages)
        send_together(bulk, topic, WINDOW + 1)
        for _ in range(PATIENCE - 1):
            bulk.produce(topic, MANY)
        assert not way_made
        bulk.produce(topic, MANY)
        assert way_made[0]
        other.produce(topic)
        assert way_made == [True, False]
        for _ in range(PATIENCE):
            bulk.produce(topic, MANY)
            other.produce(topic)
        assert way_made == [True, False]
        assert not is_gathering(limits)


def test_whoever_waits_for_answers_is_not_made_to_wait(
    broker: EmbeddedBroker, way_made: list[bool], new_topic: Callable[[], str]
) -> None:
    topic = new_topic()
    with Raw(broker.port) as bulk:
        bulk.create(topic)
        send_together(bulk, topic, WINDOW)
        for _ in range(2 * PATIENCE):
            bulk.produce(topic, MANY)
    assert not way_made


def test_whoever_turns_out_to_wait_for_answers_is_made_to_wait_no_more(
    broker: EmbeddedBroker, limits: ConnectionLimits, way_made: list[bool], new_topic: Callable[[], str]
) -> None:
    topic = new_topic()
    window = WINDOW + 3
    with Raw(broker.port) as bulk:
        bulk.create(topic)
        send_together(bulk, topic, window)
        pace = next(c._pace for c in limits.open if c._pace.runs_ahead)

        def is_found_out() -> bool:
            send_together(bulk, topic, window, MANY)
            return not pace.runs_ahead

        wait_until(is_found_out, "taken for one that waits")
        assert way_made[0]
        assert pace._window == window
        assert pace._gathering is None
        send_together(bulk, topic, window + 1, MANY)
        wait_until(lambda: pace.runs_ahead, "more than that at once")


def test_every_request_is_answered_and_the_last_ones_too(
    broker: EmbeddedBroker, limits: ConnectionLimits, way_made: list[bool], new_topic: Callable[[], str]
) -> None:
    topic = new_topic()
    with Raw(broker.port) as bulk:
        bulk.create(topic)
        send_together(bulk, topic, WINDOW + 1, MANY)
        for _ in range(PATIENCE):
            bulk.produce(topic, MANY)
        assert way_made[0]
        for count in (1, 7, 40, 400):
            assert len(set(send_together(bulk, topic, count, MANY))) == count  # each has an offset of its own
    wait_until(lambda: not is_gathering(limits), "the connection gone")
    wait_until(lambda: way_made.count(True) == way_made.count(False), "no more way to make")
    with Raw(broker.port) as other:
        assert other.fetch(topic).high_watermark == (WINDOW + 1 + PATIENCE + 448) * MANY_RECORDS


def test_it_ends_when_nothing_more_comes(
    broker: EmbeddedBroker, limits: ConnectionLimits, way_made: list[bool], new_topic: Callable[[], str]
) -> None:
    topic = new_topic()
    with Raw(broker.port) as bulk:
        bulk.create(topic)
        send_together(bulk, topic, WINDOW + 1)
        for _ in range(PATIENCE):
            bulk.produce(topic, MANY)
        assert way_made[0]
        wait_until(lambda: not is_gathering(limits), "looks in vain")
        wait_until(lambda: way_made == [True, False], "no more way to make")


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
