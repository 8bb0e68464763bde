"""A topic that is deleted and created again has nothing of the old one."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.reliability.process import BrokerProcess

COUNT = 2000
TIMEOUT_S = 60


def _produce(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(COUNT):
        producer.produce("orders", value=str(number), partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def _watermarks(servers: str) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g"})
    try:
        return consumer.get_watermark_offsets(TopicPartition("orders", 0), timeout=TIMEOUT_S)
    finally:
        consumer.close()


def test_records_of_a_recreated_topic_survive_a_crash(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(TIMEOUT_S)
        _produce(broker.bootstrap_servers)
        for future in admin.delete_records([TopicPartition("orders", 0, COUNT - 200)]).values():
            future.result(TIMEOUT_S)
        broker.stop()  # which writes the checkpoints
        broker.start()
        assert _watermarks(broker.bootstrap_servers) == (COUNT - 200, COUNT)
        admin.delete_topics(["orders"])["orders"].result(TIMEOUT_S)
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(TIMEOUT_S)
        _produce(broker.bootstrap_servers)
        broker.kill()
        broker.start()
        assert _watermarks(broker.bootstrap_servers) == (0, COUNT)
