"""The client against a broker: administration, raw batches in and out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from barnabas.client.wire import BrokerError, Client, admin
from barnabas.client.wire.admin import ConfigSource, ResourceType
from barnabas.client.wire.data import Fetched, FetchLimits, fetch, produce
from barnabas.client.wire.decoding import decode
from barnabas.client.wire.errors import ProtocolError
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.testing import EmbeddedBroker
from barnabas.wire.batch import CorruptBatch
from barnabas.wire.compression import Codec
from barnabas.wire.records import Record, encode_batch, encode_end_marker

NOW = 1_700_000_000_000


@pytest.fixture
def client(shared_broker: EmbeddedBroker) -> Iterator[Client]:
    with Client(shared_broker.bootstrap_servers, timeout_s=60) as made:
        yield made


@pytest.fixture
def topic(client: Client, new_topic: Callable[[], str]) -> str:
    name = new_topic()
    admin.create_topic(client, name, partitions=3, configs={"retention.ms": "-1"})
    return name


def _batch(count: int, codec: Codec = Codec.NONE) -> bytes:
    return encode_batch([Record(timestamp=NOW + at, value=b"%d" % at) for at in range(count)], codec=codec)


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_go_in_and_come_out(client: Client, topic: str, codec: Codec) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 2)
    assert {at.base_offset for at in produce(client, dict.fromkeys([first, second], _batch(5, codec))).values()} == {0}
    assert produce(client, {first: _batch(2)}, acks=1)[first].base_offset == 5
    fetched = {item.partition: item for item in fetch(client, {first: 3, second: 0})}
    found = decode(fetched[first], 3)
    assert [record.offset for record in found.records] == [3, 4, 5, 6]
    assert found.next_offset == 7 == fetched[first].high_watermark
    assert [record.value for record in decode(fetched[second], 0).records] == [b"0", b"1", b"2", b"3", b"4"]


def test_nobody_answers_for_acks_0(client: Client, topic: str) -> None:
    partition = TopicPartition(topic, 1)
    assert produce(client, {partition: _batch(1)}, acks=0)[partition].base_offset == -1
    assert produce(client, {partition: _batch(1)})[partition].base_offset == 1


def test_an_offset_out_of_range_is_an_error(client: Client, topic: str) -> None:
    with pytest.raises(BrokerError) as raised:
        fetch(client, {TopicPartition(topic, 0): 1000}, FetchLimits(max_wait_ms=10))
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_end_of_a_partition_brings_nothing(client: Client, topic: str) -> None:
    (fetched,) = fetch(client, {TopicPartition(topic, 0): 0}, FetchLimits(max_wait_ms=10))
    assert decode(fetched, 0) == ([], 0)


def test_offsets_by_time_and_at_both_ends(client: Client, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    produce(client, {partition: _batch(5)})
    ask = [admin.EARLIEST, admin.LATEST, NOW + 3, NOW + 100, admin.MAX_TIMESTAMP]
    found = [admin.list_offsets(client, {partition: timestamp})[partition].offset for timestamp in ask]
    assert found == [0, 5, 3, -1, 4]


def test_records_are_deleted(client: Client, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    produce(client, {partition: _batch(5)})
    assert admin.delete_records(client, {partition: 2}) == {partition: 2}
    assert admin.list_offsets(client, {partition: admin.EARLIEST})[partition].offset == 2


def test_topics_and_settings_are_changed(client: Client, topic: str) -> None:
    admin.create_partitions(client, topic, 4)
    assert len(client.topic(topic).partitions) == 4
    admin.alter_configs(
        client, ResourceType.TOPIC, topic, changed={"segment.bytes": "1048576"}, deleted=["retention.ms"]
    )
    (settings,) = admin.describe_configs(client, ResourceType.TOPIC, [topic]).values()
    assert {item.name: item.value for item in settings if item.source is ConfigSource.TOPIC} == {
        "segment.bytes": "1048576"
    }
    with pytest.raises(BrokerError, match="INVALID_CONFIG"):
        admin.alter_configs(client, ResourceType.TOPIC, topic, changed={"no.such": "1"})
    results = admin.delete_topics(client, [topic, "no-such"])
    assert results[topic] is None
    assert results["no-such"] is not None


def test_the_cluster_and_its_folders_are_described(client: Client, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    produce(client, {partition: _batch(5)})
    cluster = admin.describe_cluster(client)
    assert len(cluster.brokers) == 1
    (directory,) = admin.describe_log_dirs(client, {topic: [0, 1]})
    assert directory.sizes[partition] == len(_batch(5))
    node = str(cluster.brokers[0].broker_id)
    assert admin.describe_configs(client, ResourceType.BROKER, [node])[node]


def test_a_partition_that_is_not_there_is_named(client: Client, topic: str) -> None:
    with pytest.raises(BrokerError, match=f"topic {topic} has no partition 9"):
        admin.list_offsets(client, {TopicPartition(topic, 9): admin.LATEST})


def _fetched(*batches: bytes, aborted: tuple[tuple[int, int], ...] = ()) -> Fetched:
    return Fetched(TopicPartition("t", 0), 0, 100, 100, 0, memoryview(b"".join(batches)), aborted)


def _transaction(offset: int, producer_id: int) -> bytes:
    record = Record(timestamp=NOW, value=b"%d" % producer_id)
    return encode_batch(
        [record], base_offset=offset, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
    )


def _end(offset: int, producer_id: int, *, commit: bool) -> bytes:
    return encode_end_marker(
        commit=commit, coordinator_epoch=0, producer_id=producer_id, producer_epoch=0, timestamp=NOW, base_offset=offset
    )


def test_aborted_transactions_are_left_out() -> None:
    batches = [
        _transaction(0, 1),
        _transaction(1, 2),
        _end(2, 1, commit=False),
        _transaction(3, 1),
        _end(4, 2, commit=True),
        _end(5, 1, commit=True),
    ]
    fetched = _fetched(*batches, aborted=((1, 0),))
    assert [record.offset for record in decode(fetched, 0, read_committed=True).records] == [1, 3]
    assert [record.offset for record in decode(fetched, 0).records] == [0, 1, 3]
    assert decode(fetched, 0).next_offset == 6


def test_a_bad_checksum_is_told() -> None:
    broken = bytearray(_batch(1))
    broken[-1] ^= 1
    with pytest.raises(CorruptBatch, match="bad checksum"):
        decode(_fetched(bytes(broken)), 0)


def test_a_cut_off_first_batch_is_told_and_a_later_one_is_left() -> None:
    with pytest.raises(ProtocolError, match="no whole batch"):
        decode(_fetched(_batch(5)[:-1]), 0)
    whole = encode_batch([Record(timestamp=NOW, value=b"x")])
    assert decode(_fetched(whole, _batch(5)[:-1]), 0).next_offset == 1
