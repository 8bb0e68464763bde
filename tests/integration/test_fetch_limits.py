"""How much a fetch brings: its own limit, the broker's, each partition's, and always enough to go on.

Kafka's rules (KIP-74): limits count in whole batches; the first batch of a reply comes even where it is larger than
every limit; partitions are filled in the order asked for. A client on the broker's own machine gets less at a time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest

from barnabas.broker.handlers import fetch
from barnabas.testing import EmbeddedBroker
from barnabas.wire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.reliability.raw import FETCH_VERSION, Raw, batch

PARTITIONS = 4
BATCHES = 10
BATCH = batch(b"v" * 1000)
SIZE = len(BATCH)
BROKERS_LIMIT = 35 * SIZE
LOCAL_BYTES = 5 * SIZE
ANOTHER_ADDRESS = "127.0.0.2"


@pytest.fixture(scope="module")
def client() -> Iterator[Raw]:
    with EmbeddedBroker(settings={"fetch.max.bytes": str(BROKERS_LIMIT)}) as broker, Raw(broker.port) as raw:
        yield raw


@pytest.fixture
def topic(client: Raw, new_topic: Callable[[], str]) -> str:
    return filled(client, new_topic())


def filled(client: Raw, name: str) -> str:
    client.create(name, PARTITIONS)
    for partition in range(PARTITIONS):
        for _ in range(BATCHES):
            assert client.produce(name, BATCH, partition=partition).error_code == 0
    return name


def sizes(
    client: Raw,
    topic: str,
    max_bytes: int,
    partition_bytes: int = 1 << 20,
    order: tuple[int, ...] = (0, 1, 2, 3),
    min_bytes: int = 0,
) -> list[int]:
    """Batches that come of each partition, in the order asked for."""
    wanted = [FetchPartition(number, fetch_offset=0, partition_max_bytes=partition_bytes) for number in order]
    topics = [FetchTopic(topic, partitions=wanted)]
    request = FetchRequest(max_wait_ms=60_000, min_bytes=min_bytes, max_bytes=max_bytes, topics=topics)
    reply = client.call(request, FetchResponse, FETCH_VERSION).responses[0]
    assert [found.partition_index for found in reply.partitions] == list(order)
    assert all((found.error_code, found.high_watermark) == (0, BATCHES) for found in reply.partitions)
    lengths = [len(found.records or b"") for found in reply.partitions]
    assert all(length % SIZE == 0 for length in lengths)
    return [length // SIZE for length in lengths]


def test_partitions_are_filled_in_order_up_to_the_limit(client: Raw, topic: str) -> None:
    assert sizes(client, topic, 25 * SIZE) == [10, 10, 5, 0]
    assert sizes(client, topic, 25 * SIZE, order=(3, 1, 0, 2)) == [10, 10, 5, 0]


def test_part_of_a_batch_counts_for_none(client: Raw, topic: str) -> None:
    assert sizes(client, topic, 26 * SIZE - 1) == [10, 10, 5, 0]


def test_each_partition_has_its_own_limit(client: Raw, topic: str) -> None:
    assert sizes(client, topic, 1 << 20, partition_bytes=3 * SIZE + 1) == [3, 3, 3, 3]
    assert sizes(client, topic, 8 * SIZE, partition_bytes=3 * SIZE) == [3, 3, 2, 0]


def test_the_first_batch_comes_whatever_the_limits(client: Raw, topic: str) -> None:
    for limit in (SIZE - 1, 1, 0, -1):
        assert sizes(client, topic, limit) == [1, 0, 0, 0]
        assert sizes(client, topic, 1 << 20, partition_bytes=limit) == [1, 0, 0, 0]


def test_the_brokers_limit_holds_for_all(client: Raw, topic: str) -> None:
    assert sizes(client, topic, 1 << 30) == [10, 10, 10, 5]


def test_scraps_of_a_limit_are_not_filled(client: Raw, topic: str) -> None:
    """Where a sixteenth or less is left, the rest of the partitions is answered without a look at their logs."""
    limit = 21 * SIZE
    assert sizes(client, topic, limit) == [10, 10, 0, 0]
    assert sizes(client, topic, limit, order=(2, 3, 0, 1)) == [10, 10, 0, 0]


@pytest.fixture
def near(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedBroker]:
    """For which every client but a new one reads on and on."""
    monkeypatch.setattr(fetch, "PROMPT_MS", 1 << 40)
    with EmbeddedBroker(settings={"barnabas.fetch.local.bytes": str(LOCAL_BYTES)}) as broker:
        yield broker


def test_a_client_on_this_machine_gets_few_partitions_at_a_time_and_all_in_turn(near: EmbeddedBroker) -> None:
    with Raw(near.port) as client:
        topic = filled(client, "topic")
        assert sizes(client, topic, 1 << 20) == [10, 10, 10, 10], "a new one"
        turns = [sizes(client, topic, 1 << 20) for _ in range(5)]
        assert turns == [[10, 0, 0, 0], [0, 10, 0, 0], [0, 0, 10, 0], [0, 0, 0, 10], [10, 0, 0, 0]]
        assert sizes(client, topic, 1 << 20, order=(1, 2, 3, 0)) == [10, 0, 0, 0]
        assert sizes(client, topic, 1 << 20, order=(2, 3)) == [10, 0]
        assert sizes(client, topic, 1 << 20, partition_bytes=2 * SIZE) == [2, 2, 0, 2]


def test_such_a_client_gets_what_its_own_limits_say_in_the_order_asked_for(near: EmbeddedBroker) -> None:
    with Raw(near.port) as client:
        topic = filled(client, "topic")
        for _ in range(2):
            assert sizes(client, topic, 3 * SIZE, partition_bytes=2 * SIZE) == [2, 1, 0, 0]
        assert sizes(client, topic, 1 << 20, min_bytes=25 * SIZE) == [10, 0, 10, 10], "what it wants to wait for"


def test_a_client_that_waits_between_fetches_gets_all_that_it_asks_for(
    near: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "PROMPT_MS", -1)
    with Raw(near.port) as client:
        topic = filled(client, "topic")
        for _ in range(3):
            assert sizes(client, topic, 1 << 20) == [10, 10, 10, 10]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has the addresses above 127.0.0.1 without being told")
def test_a_client_elsewhere_gets_all_that_it_asks_for(near: EmbeddedBroker) -> None:
    with Raw(near.port, source=ANOTHER_ADDRESS) as client:
        topic = filled(client, "topic")
        for _ in range(3):
            assert sizes(client, topic, 1 << 20) == [10, 10, 10, 10]


def test_in_a_session_every_partition_gets_its_turn(near: EmbeddedBroker) -> None:
    with Raw(near.port) as client:
        topic = filled(client, "topic")
        at = dict.fromkeys(range(PARTITIONS), 0)
        changed, session_id, turns = list(at), 0, []
        for epoch in range(2 * PARTITIONS):
            wanted = [
                FetchPartition(number, fetch_offset=at[number], partition_max_bytes=4 * SIZE) for number in changed
            ]
            request = FetchRequest(
                max_wait_ms=0,
                session_id=session_id,
                session_epoch=epoch,
                topics=[FetchTopic(topic, partitions=wanted)],
            )
            reply = client.call(request, FetchResponse, FETCH_VERSION)
            session_id = reply.session_id
            came = [data for found in reply.responses for data in found.partitions if data.records]
            changed = [data.partition_index for data in came]
            for data in came:
                at[data.partition_index] += len(data.records or b"") // SIZE
            turns.append(changed)
        assert turns[:5] == [[0, 1, 2, 3], [0, 1], [2, 3], [0, 1, 2], [3]]
        assert set(at.values()) == {BATCHES}
