"""Size of fetch responses: limits of request, broker and partition, and always at least one batch.

Kafka's rules (KIP-74): limits count in whole batches; the first batch of a reply comes even where it is larger than
every limit; partitions are filled in the order asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from barnabas.testing import EmbeddedBroker
from barnabas.wire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.reliability.raw import FETCH_VERSION, Raw, batch

PARTITIONS = 4
BATCHES = 10
BATCH = batch(b"v" * 1000)
SIZE = len(BATCH)
BROKERS_LIMIT = 35 * SIZE


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
