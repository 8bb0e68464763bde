"""The source against Apache Kafka itself, where its jars are at hand: transactions, codecs, ids of topics, groups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import barnabas
from barnabas.client.wire import BrokerError, Client, groups
from barnabas.client.wire.admin import create_topic, delete_topics
from bench.systems import CACHE, Kafka, unavailable
from tests.spark.conftest import Reading

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class OneNode(Kafka):
    """With transactions, whose log would wait for three nodes."""

    def _write_config(self, *, fsync: bool) -> str:
        path = super()._write_config(fsync=fsync)
        with open(path, "a", encoding="utf-8") as file:
            file.write("transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n")
        return path


@pytest.fixture(scope="module")
def kafka() -> Iterator[str]:
    reason = unavailable()
    if reason is None and not os.environ.get("KAFKA_LIBS") and not (CACHE / "libs").exists():
        reason = "Kafka's jars are not here: make dump fetches them"
    if reason is not None:
        pytest.skip(reason)
    with OneNode() as started:
        yield started.start().servers


def send(servers: str, topic: str, values: list[str], **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": servers, **settings})
    for value in values:
        producer.produce(topic, value.encode(), key=b"k", partition=0, headers=[("h", b"1")])
    assert producer.flush(60) == 0


def transact(servers: str, topic: str, values: list[str], *, commit: bool) -> None:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"t-{topic}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value.encode(), partition=0)
    assert producer.flush(60) == 0
    end = producer.commit_transaction if commit else producer.abort_transaction
    end(30)


def read(frame: Any) -> list[str]:
    return [bytes(row.value).decode() for row in frame.orderBy("offset").select("value").collect()]


def test_batches_and_transactions(spark: Any, kafka: str) -> None:
    with Client(kafka) as client:
        create_topic(client, "batches", partitions=1)
    expected: list[str] = []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        send(kafka, "batches", [f"{codec}{number}" for number in range(50)], **{"compression.type": codec})
        expected += [f"{codec}{number}" for number in range(50)]
    transact(kafka, "batches", ["aborted1", "aborted2"], commit=False)
    transact(kafka, "batches", ["committed"], commit=True)
    reading = Reading(spark, kafka)
    committed = reading.batch(subscribe="batches", kafka__isolation__level="read_committed", minPartitions=3)
    assert read(committed) == [*expected, "committed"]
    assert read(reading.batch(subscribe="batches")) == [*expected, "aborted1", "aborted2", "committed"]
    headers = reading.batch(subscribe="batches", includeHeaders=True).where("offset = 7").collect()[0].headers
    assert [tuple(header) for header in headers] == [("h", b"1")]


def test_streams_groups_and_topics_made_again(spark: Any, kafka: str, tmp_path: Path) -> None:
    found: list[str] = []

    def run(**options: Any) -> None:
        frame = Reading(spark, kafka).stream(
            subscribe="streams", startingOffsets="earliest", kafka__group__id="progress", **options
        )
        writer = frame.writeStream.foreachBatch(lambda batch, _: found.extend(read(batch)))
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert query.awaitTermination(60)

    with Client(kafka) as client:
        create_topic(client, "streams", partitions=1)
        send(kafka, "streams", ["a", "b", "c"])
        run(maxOffsetsPerTrigger=2)
        assert found == ["a", "b", "c"]
        assert [each.offset for each in groups.committed_offsets(client, "progress").values()] == [3]
        delete_topics(client, ["streams"])
        create_topic(client, "streams", partitions=1)
        send(kafka, "streams", ["d", "e", "f", "g"])
        with pytest.raises(Exception, match="streams-0: the topic was deleted and created again after offset 3"):
            run()
        run(failOnDataLoss="false")
        assert found == ["a", "b", "c", "d", "e", "f", "g"]


def test_a_topic_is_read_as_a_table(kafka: str) -> None:
    with Client(kafka) as client:
        create_topic(client, "as-a-table", partitions=2)
    send(kafka, "as-a-table", ["a", "b"], **{"compression.type": "lz4"})
    transact(kafka, "as-a-table", ["c"], commit=True)
    transact(kafka, "as-a-table", ["aborted"], commit=False)
    found = barnabas.read("as-a-table", servers=kafka, headers=True)
    assert found["value"].to_pylist() == [b"a", b"b", b"c"]
    assert found["headers"][0].as_py() == [{"key": "h", "value": b"1"}]
    everything = barnabas.read("as-a-table", servers=kafka, isolation="read_uncommitted", start={0: 2})
    assert everything["value"].to_pylist() == [b"c", b"aborted"]
    with pytest.raises(BrokerError, match="there is no such topic"):
        barnabas.read("no-such-topic", servers=kafka)
