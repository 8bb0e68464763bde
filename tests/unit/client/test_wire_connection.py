"""One connection, against a broker that answers what it should not."""

from __future__ import annotations

import socket

import pytest

from barnabas.client.wire import (
    BrokerError,
    BrokerUnavailable,
    Client,
    ConnectionSettings,
    ProtocolError,
    UnsupportedApi,
    connect,
    parse_address,
)
from barnabas.model.errors import ErrorCode
from barnabas.wire.api.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.wire.schema import Message
from tests.unit.client.fake_broker import FakeBroker, offered, refused_versions

PATIENT = ConnectionSettings(connect_timeout_s=60, request_timeout_s=60)
HASTY = ConnectionSettings(connect_timeout_s=60, request_timeout_s=0.3)


def _closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_the_highest_common_version_is_used() -> None:
    with FakeBroker(lambda key, _v, _b: offered((3, 0, 9)) if key == 18 else MetadataResponse()) as broker:
        connection = connect(parse_address(broker.address), PATIENT)
        assert connection.request(MetadataRequest(), MetadataResponse) == MetadataResponse()
        connection.close()
        assert broker.asked == [(18, 4), (3, 9)]


def test_a_broker_with_an_older_api_versions_is_asked_again() -> None:
    def answer(_key: int, version: int, _body: bytes) -> Message | bytes:
        return refused_versions(1) if version > 2 else offered((3, 0, 1))

    with FakeBroker(answer) as broker:
        connection = connect(parse_address(broker.address), PATIENT)
        connection.close()
        assert connection.versions[3] == (0, 1)
        assert broker.asked == [(18, 4), (18, 2)]


@pytest.mark.parametrize(
    ("apis", "words"), [([], "does not offer Metadata"), ([(3, 50, 60)], "no version of Metadata")]
)
def test_no_common_version_is_said(apis: list[tuple[int, int, int]], words: str) -> None:
    with FakeBroker(lambda _k, _v, _b: offered(*apis)) as broker:
        connection = connect(parse_address(broker.address), PATIENT)
        with pytest.raises(UnsupportedApi, match=words):
            connection.request(MetadataRequest(), MetadataResponse)
        connection.close()


def test_a_refused_connection_names_the_address() -> None:
    address = f"127.0.0.1:{_closed_port()}"
    with pytest.raises(BrokerUnavailable, match=f"{address}: connection refused"):
        Client(address).load(None)


def test_every_bootstrap_address_is_tried() -> None:
    def answer(key: int, _version: int, _body: bytes) -> Message:
        return offered((3, 0, 13)) if key == 18 else MetadataResponse()

    with (
        FakeBroker(answer) as broker,
        Client(f"127.0.0.1:{_closed_port()},{broker.address}", PATIENT) as client,
    ):
        assert client.load(None) == {}


@pytest.mark.parametrize(
    "reply",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x00\x00\x02\x00\x00", b"\x00\x00\x00\x05\x00\x00\x00\x01\x00"],
)
def test_what_is_no_broker_is_told(reply: bytes) -> None:
    with FakeBroker(lambda _k, _v, _b: reply) as broker, pytest.raises(ProtocolError, match="does not speak Kafka's"):
        connect(parse_address(broker.address), PATIENT)


def test_a_reply_to_another_request_is_refused() -> None:
    wrong = b"\x00\x00\x00\x04\x00\x00\x07\x07"
    with FakeBroker(lambda _k, _v, _b: wrong) as broker, pytest.raises(ProtocolError, match="out of order"):
        connect(parse_address(broker.address), PATIENT)


def test_silence_ends_with_a_timeout() -> None:
    with FakeBroker(lambda _k, _v, _b: b"") as broker, pytest.raises(BrokerUnavailable, match="timed out"):
        connect(parse_address(broker.address), HASTY)


def test_a_lost_connection_is_made_again() -> None:
    hung_up: list[bool] = []

    def answer(key: int, _version: int, _body: bytes) -> Message | None:
        if key == 18:
            return offered((3, 0, 13))
        if not hung_up:
            hung_up.append(True)
            return None
        return MetadataResponse(cluster_id="c")

    with FakeBroker(answer) as broker, Client(broker.address, PATIENT, backoff_s=0.01) as client:
        client.load([])
        assert client.metadata.cluster_id == "c"
        assert [key for key, _ in broker.asked] == [18, 3, 18, 3]


def _metadata(broker: FakeBroker, code: int, leader: int = 1) -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataResponseBroker(1, "127.0.0.1", broker.port)],
        topics=[
            MetadataResponseTopic(
                error_code=code, name="t", partitions=[MetadataResponsePartition(leader_id=leader)] if not code else []
            )
        ],
    )


def test_a_leader_is_waited_for_but_not_an_unknown_topic() -> None:
    codes = [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NONE]

    def answer(key: int, _version: int, _body: bytes) -> Message:
        return offered((3, 0, 13)) if key == 18 else _metadata(broker, codes.pop(0))

    with FakeBroker(answer) as broker, Client(broker.address, PATIENT, backoff_s=0.01) as client:
        assert list(client.topic("t").partitions) == [0]
        codes.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        client.forget(["t"])
        with pytest.raises(BrokerError, match="topic t: there is no such topic"):
            client.topic("t")


def test_an_error_of_a_newer_broker_is_an_unknown_one() -> None:
    assert BrokerError(9999, "x").code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert str(BrokerError(36, "topic t", "It exists.")) == "topic t: It exists (TOPIC_ALREADY_EXISTS)"
