"""Producers with a transactional id fail at once with a fatal error: transactions are not supported yet."""

from __future__ import annotations

import asyncio

import confluent_kafka
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AiokafkaError
from kafka import KafkaProducer
from kafka.errors import KafkaError, KafkaTimeoutError

from barnabas.model.errors import ErrorCode
from barnabas.testing import EmbeddedBroker
from barnabas.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.reliability.raw import Raw

PATIENCE_S = 50
"""Far longer than a refusal takes, and within the time limit of a test."""


def test_confluent_kafka(shared_broker: EmbeddedBroker) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": shared_broker.bootstrap_servers, "transactional.id": "t", "log_level": 0}
    )
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        producer.init_transactions(PATIENCE_S)
    error = caught.value.args[0]
    assert error.fatal()
    assert "does not support transactions yet" in error.str()


def test_kafka_python(shared_broker: EmbeddedBroker) -> None:
    producer = KafkaProducer(
        bootstrap_servers=shared_broker.bootstrap_servers, transactional_id="t", max_block_ms=PATIENCE_S * 1000
    )
    try:
        with pytest.raises(KafkaError, match="UnsupportedVersion") as caught:
            producer.init_transactions()
        assert not isinstance(caught.value, KafkaTimeoutError)
    finally:
        producer.close(timeout=0)


def test_aiokafka(shared_broker: EmbeddedBroker) -> None:
    async def start() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=shared_broker.bootstrap_servers, transactional_id="t")
        try:
            with pytest.raises(AiokafkaError, match="UnsupportedVersion"):
                await asyncio.wait_for(producer.start(), PATIENCE_S)
        finally:
            await producer.stop()

    asyncio.run(start())


@pytest.mark.parametrize(
    ("software", "found", "given"),
    [
        ("apache-kafka-java", ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_VERSION),
        ("librdkafka", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION),
        ("kgo", ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_clients_of_other_languages(
    single_broker: EmbeddedBroker, software: str, found: ErrorCode, given: ErrorCode
) -> None:
    with Raw(single_broker.port) as raw:
        raw.call(ApiVersionsRequest(software, "1.0"), ApiVersionsResponse, 3)
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=["t"])
        coordinator = raw.call(request, FindCoordinatorResponse, 4).coordinators[0]
        assert coordinator.error_code == found
        assert (coordinator.port == single_broker.port) == (found is ErrorCode.NONE)
        assert ("not support transactions" in (coordinator.error_message or "")) == (found is not ErrorCode.NONE)
        answer = raw.call(InitProducerIdRequest(transactional_id="t"), InitProducerIdResponse, 4)
        assert (answer.error_code, answer.producer_id) == (given, -1)
