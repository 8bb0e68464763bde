"""Options of the source and the sink: what they mean, which go together, and how a wrong one is refused."""

from __future__ import annotations

import logging
import re

import pytest

from barnabas.model.ids import TopicPartition
from barnabas.spark.options import (
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTimestamps,
    Everywhere,
    SourceOptions,
    SparkOptionError,
    connect,
    parse_sink,
    parse_source,
)

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def batch(**options: str) -> SourceOptions:
    return parse_source(_with_servers(options), streaming=False)


def stream(**options: str) -> SourceOptions:
    return parse_source(_with_servers(options), streaming=True)


def _with_servers(options: dict[str, str]) -> dict[str, str]:
    named = {name.replace("__", "."): value for name, value in options.items()}
    if not {name.lower() for name in named} & {"subscribe", "subscribepattern", "assign"}:
        named["subscribe"] = "t"
    return {**SERVERS, **named}


def test_topics_are_named_with_commas() -> None:
    assert batch(subscribe=" a, b,,a ").subscription.topics == ("a", "b")


def test_partitions_are_assigned_by_json() -> None:
    found = batch(assign='{"b":[1,0],"a":[3]}').subscription.partitions
    assert found == (TopicPartition("a", 3), TopicPartition("b", 0), TopicPartition("b", 1))


def test_a_pattern_is_kept_as_it_is() -> None:
    assert stream(subscribePattern=" orders.* ").subscription.pattern == "orders.*"


def test_names_do_not_depend_on_case() -> None:
    found = parse_source(
        {"KAFKA.Bootstrap.Servers": "h:1", "SUBSCRIBE": "t", "startingoffsets": "EARLIEST", "failondataloss": "False"},
        streaming=True,
    )
    assert found.kafka == {"bootstrap.servers": "h:1"}
    assert found.starting == Everywhere(EARLIEST)
    assert not found.fail_on_data_loss


def test_defaults_are_those_of_sparks_source() -> None:
    assert (stream().starting, batch().starting) == (Everywhere(LATEST), Everywhere(EARLIEST))
    found = stream()
    assert found.ending == Everywhere(LATEST)
    assert found.fail_on_data_loss
    assert not found.include_headers
    assert found.max_trigger_delay_s == 900
    assert found.publish_progress
    assert found.group_id is None
    assert found.group_id_prefix == "barnabas-spark"


def test_one_time_for_all_goes_before_times_and_times_before_offsets() -> None:
    times, offsets = '{"t":{"0":5}}', '{"t":{"0":7}}'
    assert batch(startingOffsets=offsets).starting == AtOffsets("startingOffsets", {TopicPartition("t", 0): 7})
    by_partition = batch(startingOffsets=offsets, startingOffsetsByTimestamp=times).starting
    assert by_partition == AtTimestamps("startingOffsetsByTimestamp", {TopicPartition("t", 0): 5})
    for_all = batch(startingOffsets=offsets, startingOffsetsByTimestamp=times, startingTimestamp="9").starting
    assert for_all == AtTimestamps("startingTimestamp", 9)
    assert batch(endingOffsets=offsets, endingTimestamp="3").ending == AtTimestamps("endingTimestamp", 3)


@pytest.mark.parametrize(
    ("text", "seconds"), [("1500", 1.5), ("250ms", 0.25), ("30s", 30), ("15m", 900), ("2min", 120), ("1h", 3600)]
)
def test_times_have_units(text: str, seconds: float) -> None:
    assert stream(maxTriggerDelay=text).max_trigger_delay_s == pytest.approx(seconds)


def test_settings_of_the_client_pass_through() -> None:
    found = stream(kafka__isolation__level="read_committed", kafka__group__id="g", kafka__session__timeout__ms="1")
    assert found.group_id == "g"
    assert found.kafka["isolation.level"] == "read_committed"


def test_what_spark_adds_by_itself_is_no_mistake() -> None:
    stream(checkpointLocation="/c", queryName="q")
    parse_sink({**SERVERS, "checkpointlocation": "/c", "queryname": "q", "option.topic": "t", "provider": "barnabas"})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOfsets": "latest"}, ["startingOfsets", "startingOffsets?"]),
        ({"bootstrap__servers": "h:1"}, ["bootstrap.servers", "kafka.bootstrap.servers?"]),
        ({"path": "orders"}, ["path", "subscribe"]),
        ({"xyz": "1"}, ["xyz", "maxOffsetsPerTrigger"]),
        ({"kafka__isolation__levle": "x"}, ["kafka.isolation.levle", "kafka.isolation.level?"]),
        ({"kafka__isolation__level": "x"}, ["kafka.isolation.level", "'x'", "read_committed"]),
        ({"kafka__auto__offset__reset": "latest"}, ["kafka.auto.offset.reset", "startingOffsets"]),
        ({"kafka__enable__auto__commit": "true"}, ["kafka.enable.auto.commit", "publishProgress"]),
        ({"kafka__value__deserializer": "x"}, ["kafka.value.deserializer"]),
        ({"kafka__security__protocol": "SASL_SSL"}, ["kafka.security.protocol", "SASL_SSL", "PLAINTEXT"]),
        ({"kafka__ssl__truststore__location": "x"}, ["kafka.ssl.truststore.location"]),
        ({"kafka__sasl__mechanism": "x"}, ["kafka.sasl.mechanism"]),
        ({"kafka__fetch__max__bytes": "many"}, ["kafka.fetch.max.bytes", "'many'"]),
        ({"subscribe": " , "}, ["subscribe", "names of topics"]),
        ({"subscribePattern": "("}, ["subscribePattern", "'('"]),
        ({"subscribePattern": " "}, ["subscribePattern", "empty"]),
        ({"assign": "t"}, ["assign", "'t'", '{"orders":[0,1]}']),
        ({"assign": '{"t":["0"]}'}, ["assign"]),
        ({"assign": "{}"}, ["assign"]),
        ({"subscribe": "a", "assign": '{"t":[0]}'}, ["subscribe and assign"]),
        ({"startingOffsets": "newest"}, ["startingOffsets", "'newest'", "earliest or latest"]),
        ({"startingOffsets": '{"t":{"0":-3}}'}, ["startingOffsets"]),
        ({"startingOffsets": '{"t":{"x":1}}'}, ["startingOffsets"]),
        ({"startingOffsets": '{"t":5}'}, ["startingOffsets"]),
        ({"startingOffsets": "{}"}, ["startingOffsets"]),
        ({"startingTimestamp": "yesterday"}, ["startingTimestamp", "milliseconds"]),
        ({"startingOffsetsByTimestamp": '{"t":{"0":-1}}'}, ["startingOffsetsByTimestamp"]),
        ({"startingOffsetsByTimestampStrategy": "guess"}, ["startingOffsetsByTimestampStrategy", "error or latest"]),
        ({"failOnDataLoss": "maybe"}, ["failOnDataLoss", "'maybe'", "true or false"]),
        ({"minPartitions": "0"}, ["minPartitions", "at least 1"]),
        ({"maxRecordsPerPartition": "-5"}, ["maxRecordsPerPartition", "at least 1"]),
        ({"maxOffsetsPerTrigger": "ten"}, ["maxOffsetsPerTrigger", "'ten'"]),
        ({"maxTriggerDelay": "soon"}, ["maxTriggerDelay", "15m"]),
    ],
)
def test_a_wrong_option_is_refused_by_name(options: dict[str, str], words: list[str]) -> None:
    with pytest.raises(SparkOptionError) as caught:
        stream(**options)
    for word in words:
        assert word in str(caught.value)


def test_brokers_must_be_named() -> None:
    with pytest.raises(SparkOptionError, match=re.escape("kafka.bootstrap.servers is missing")):
        parse_source({"subscribe": "t"}, streaming=True)
    with pytest.raises(SparkOptionError, match="is not a port"):
        parse_source({"subscribe": "t", "kafka.bootstrap.servers": "h:x"}, streaming=True)


def test_something_must_be_subscribed_to() -> None:
    with pytest.raises(SparkOptionError, match="none of them is given"):
        parse_source(SERVERS, streaming=True)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(SparkOptionError, match=f"{name} is for batch queries"):
        stream(**{name: "latest"})


def test_the_least_of_a_batch_is_not_above_the_most() -> None:
    with pytest.raises(SparkOptionError, match="minOffsetsPerTrigger is 6, above maxOffsetsPerTrigger, which is 5"):
        stream(minOffsetsPerTrigger="6", maxOffsetsPerTrigger="5")


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"])
def test_limits_are_refused_where_spark_has_none(name: str) -> None:
    with pytest.raises(SparkOptionError, match=f"{name} needs Spark 4.2"):
        parse_source({**SERVERS, "subscribe": "t", name: "5"}, streaming=True, has_rate_limits=False)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets is latest"),
        ({"endingOffsets": "earliest"}, "endingOffsets is earliest"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets for t-0 is -1"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "endingOffsets for t-0 is -2"),
        ({"startingOffsets": '{"t":{"0":1}}', "endingOffsets": '{"t":{"1":2}}'}, "differ in t-0, t-1"),
        ({"startingOffsets": '{"t":{"0":3}}', "endingOffsets": '{"t":{"0":2}}'}, "for t-0 is 3, after endingOffsets"),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":3}}', "endingOffsetsByTimestamp": '{"t":{"0":2}}'},
            "for t-0 is 3, after endingOffsetsByTimestamp",
        ),
    ],
)
def test_a_batch_query_that_cannot_mean_anything_is_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(SparkOptionError, match=words):
        batch(**options)


def test_limits_have_no_effect_in_a_batch_query(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "barnabas.spark"):
        batch(maxOffsetsPerTrigger="5")
    assert "maxOffsetsPerTrigger has no effect" in caplog.text


def test_the_sink_knows_its_own_options() -> None:
    found = parse_sink(
        {
            **SERVERS,
            "topic": " t ",
            "includeHeaders": "true",
            "kafka.acks": "1",
            "kafka.compression.type": "zstd",
            "kafka.batch.size": "65536",
            "kafka.client.id": "me",
        }
    )
    assert (found.bootstrap_servers, found.topic, found.include_headers) == ("127.0.0.1:9092", "t", True)
    assert (found.acks, found.compression, found.max_batch_bytes) == (1, "zstd", 65536)
    assert found.kafka["client.id"] == "me"
    assert connect(found.kafka).settings.client_id == "me"


def test_the_sinks_defaults() -> None:
    found = parse_sink(SERVERS)
    assert (found.topic, found.include_headers, found.compression, found.acks) == (None, False, None, -1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "t"}, "subscribe is no option"),
        ({"tpoic": "t"}, re.escape("tpoic is no option: topic?")),
        ({"kafka.acks": "2"}, "kafka.acks is '2'"),
        ({"kafka.compression.type": "zip"}, "kafka.compression.type is 'zip'"),
        ({"kafka.transactional.id": "x"}, "kafka.transactional.id cannot be set"),
    ],
)
def test_a_wrong_option_of_the_sink_is_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(SparkOptionError, match=words):
        parse_sink({**SERVERS, **options})


def test_a_client_has_the_settings_of_kafka() -> None:
    client = connect(
        {
            "kafka.bootstrap.servers": "h:1",
            "kafka.request.timeout.ms": "2000",
            "kafka.socket.connection.setup.timeout.ms": "700",
        }
    )
    assert client.settings.request_timeout_s == 2
    assert client.settings.connect_timeout_s == pytest.approx(0.7)
    assert client.settings.client_id == "barnabas-spark"
