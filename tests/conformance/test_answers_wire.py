"""Responses compared field by field with those of Kafka 4.3.1 to the same requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from barnabas.model.errors import ErrorCode
from barnabas.testing import EmbeddedBroker
from barnabas.wire.api import incremental_alter_configs as altering
from barnabas.wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse
from barnabas.wire.api.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from barnabas.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.api.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.wire.api.produce import ProduceResponse
from barnabas.wire.compression import Codec
from tests.reliability.raw import Raw, batch, produce_request

TOPIC, BROKER = 2, 4
ALL_TOPIC_OPERATIONS = 3576
UNKNOWN, INVALID_NAME = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.fixture
def raw(single_broker: EmbeddedBroker) -> Iterator[Raw]:
    with Raw(single_broker.port) as connection:
        yield connection


@pytest.fixture
def topic(raw: Raw, new_topic: Callable[[], str]) -> str:
    name = new_topic()
    raw.create(name)
    return name


def alter(raw: Raw, topic: str, key: str, value: str, operation: int = 0) -> int:
    config = altering.AlterableConfig(key, operation, value)
    resources = [altering.AlterConfigsResource(TOPIC, topic, [config])]
    request = altering.IncrementalAlterConfigsRequest(resources)
    return int(raw.call(request, altering.IncrementalAlterConfigsResponse, 1).responses[0].error_code)


def described(raw: Raw, topic: str, key: str) -> tuple[str | None, list[str]]:
    """The value, and the names of its synonyms."""
    wanted = DescribeConfigsResource(TOPIC, topic, [key])
    request = DescribeConfigsRequest([wanted], include_synonyms=True)
    (config,) = raw.call(request, DescribeConfigsResponse, 4).results[0].configs
    return config.value, [synonym.name for synonym in config.synonyms]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("", ""),
        ("delete,delete", "delete"),
        ("delete,compact,delete", "delete,compact"),
        (" compact, delete ", "compact,delete"),
    ],
)
def test_policies_of_cleaning(raw: Raw, topic: str, value: str, shown: str) -> None:
    assert alter(raw, topic, "cleanup.policy", value) == 0
    assert described(raw, topic, "cleanup.policy")[0] == shown
    assert alter(raw, topic, "cleanup.policy", "delete,") == ErrorCode.INVALID_CONFIG


def test_the_last_policy_can_be_taken_away(raw: Raw, topic: str) -> None:
    assert alter(raw, topic, "cleanup.policy", "delete", operation=3) == 0
    assert described(raw, topic, "cleanup.policy") == ("", ["cleanup.policy", "log.cleanup.policy"])


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("retention.ms", " +5000 ", "5000"),
        ("min.cleanable.dirty.ratio", ".50", "0.5"),
        ("preallocate", "TRUE", "true"),
        ("leader.replication.throttled.replicas", "0:1,1:2", "0:1,1:2"),
        ("leader.replication.throttled.replicas", "*", "*"),
    ],
)
def test_values_are_shown_as_they_were_understood(raw: Raw, topic: str, key: str, value: str, shown: str) -> None:
    assert alter(raw, topic, key, value) == 0
    assert described(raw, topic, key)[0] == shown


def test_replicas_that_are_none(raw: Raw, topic: str) -> None:
    assert alter(raw, topic, "follower.replication.throttled.replicas", "x") == ErrorCode.INVALID_CONFIG


def test_synonyms_are_settings_of_brokers(raw: Raw, topic: str) -> None:
    assert described(raw, topic, "segment.ms")[1] == []
    assert described(raw, topic, "remote.storage.enable")[1] == []
    assert described(raw, topic, "max.message.bytes")[1] == ["message.max.bytes"]
    alter(raw, topic, "retention.ms", "5")
    assert described(raw, topic, "retention.ms")[1] == ["retention.ms"]


def test_what_one_may_do_with_topics_that_are_none(raw: Raw) -> None:
    names = [MetadataRequestTopic(name="none"), MetadataRequestTopic(name="a/b")]
    request = MetadataRequest(names, allow_auto_topic_creation=False, include_topic_authorized_operations=True)
    found = raw.call(request, MetadataResponse, 12).topics
    assert [(each.error_code, each.topic_authorized_operations) for each in found] == [
        (UNKNOWN, ALL_TOPIC_OPERATIONS),
        (INVALID_NAME, ALL_TOPIC_OPERATIONS),
    ]
    wanted = DescribeTopicPartitionsRequest([TopicRequest("none"), TopicRequest("a/b")])
    answers = raw.call(wanted, DescribeTopicPartitionsResponse, 0).topics
    assert {each.name: (each.error_code, each.topic_authorized_operations) for each in answers} == {
        "none": (UNKNOWN, ALL_TOPIC_OPERATIONS),
        "a/b": (INVALID_NAME, ALL_TOPIC_OPERATIONS),
    }


def test_a_partition_asked_for_twice_is_answered_once(raw: Raw, topic: str) -> None:
    wanted = [ListOffsetsPartition(0, timestamp=-1), ListOffsetsPartition(0, timestamp=-2)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(topic, wanted)])
    (answer,) = raw.call(request, ListOffsetsResponse, 7).topics[0].partitions
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_refused_producers_have_no_epoch(raw: Raw) -> None:
    reply = raw.call(InitProducerIdRequest(transactional_id=""), InitProducerIdResponse, 4)
    assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (ErrorCode.INVALID_REQUEST, -1, -1)


@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None), (9, None)])
def test_refused_members_have_no_protocol(raw: Raw, version: int, name: str | None) -> None:
    reply = raw.call(JoinGroupRequest(group_id=""), JoinGroupResponse, version)
    assert reply.error_code
    assert reply.protocol_name == name


def test_settings_for_all_brokers_are_told_apart_from_those_of_one(raw: Raw) -> None:
    def alter_broker(name: str, value: str | None) -> None:
        config = altering.AlterableConfig("log.retention.ms", 0 if value else 1, value)
        request = altering.IncrementalAlterConfigsRequest([altering.AlterConfigsResource(BROKER, name, [config])])
        assert raw.call(request, altering.IncrementalAlterConfigsResponse, 1).responses[0].error_code == 0

    def told(name: str, keys: list[str] | None) -> dict[str, tuple[str | None, int, int]]:
        request = DescribeConfigsRequest([DescribeConfigsResource(BROKER, name, keys)], include_synonyms=True)
        configs = raw.call(request, DescribeConfigsResponse, 4).results[0].configs
        return {config.name: (config.value, config.config_source, len(config.synonyms)) for config in configs}

    alter_broker("1", "300000")
    alter_broker("", "400000")
    assert told("", None)["log.retention.ms"] == ("400000", 3, 1)
    assert told("1", ["log.retention.ms"])["log.retention.ms"][:2] == ("300000", 2)
    assert len(told("1", [])) > 50, "an empty list of names stands for all"
    alter_broker("1", None)
    alter_broker("", None)
    assert "log.retention.ms" not in told("", None)


def test_batches_that_are_none(raw: Raw, topic: str) -> None:
    old = bytearray(batch())
    old[16] = 1
    for records in (b"", batch()[:40], batch()[:-1], bytes(old), batch() + batch()):
        assert raw.produce(topic, records).error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(("version", "code"), [(6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (7, ErrorCode.NONE)])
def test_zstd_comes_with_version_7(raw: Raw, topic: str, version: int, code: ErrorCode) -> None:
    for _ in range(2):
        request = produce_request(topic, batch(b"value", codec=Codec.ZSTD))
        (answer,) = raw.call(request, ProduceResponse, version).responses[0].partition_responses
        assert answer.error_code == code


def test_a_producer_epoch_below_none_is_refused(raw: Raw, topic: str) -> None:
    records = batch(b"value", producer_id=5, producer_epoch=-512, base_sequence=0)
    assert raw.produce(topic, records).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_fetches_beyond_the_end_tell_no_offsets(raw: Raw, topic: str) -> None:
    raw.produce(topic)
    found = raw.fetch(topic, 5)
    assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (-1, -1, -1)
