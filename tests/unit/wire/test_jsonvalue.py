"""Messages as JSON values."""

import json

import pytest

from barnabas.wire import jsonvalue
from barnabas.wire.api.fetch import FetchRequest, FetchTopic
from barnabas.wire.api.metadata import MetadataRequest
from barnabas.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData


def test_bytes_and_uuids() -> None:
    request = ProduceRequest(
        topic_data=[TopicProduceData(topic_id=bytes(range(16)), partition_data=[PartitionProduceData(1, b"\x01\xff")])]
    )
    value = jsonvalue.to_value(request, 13)
    assert value["topic_data"] == [
        {"topic_id": "000102030405060708090a0b0c0d0e0f", "partition_data": [{"index": 1, "records": "hex:01ff"}]}
    ]
    assert jsonvalue.from_value(ProduceRequest, 13, json.loads(json.dumps(value))) == request


def test_a_version_shows_its_fields() -> None:
    request = FetchRequest(topics=[FetchTopic(topic="t", topic_id=bytes(16))], cluster_id=None)
    assert "replica_id" in jsonvalue.to_value(request, 4)
    assert "replica_id" not in jsonvalue.to_value(request, 15)
    assert list(jsonvalue.to_value(request, 13)["topics"][0]) == ["topic_id", "partitions"]
    assert "cluster_id" not in jsonvalue.to_value(request, 13)
    assert jsonvalue.to_value(FetchRequest(cluster_id="c"), 13)["cluster_id"] == "c"


def test_absent_fields_have_their_default() -> None:
    assert jsonvalue.from_value(FetchRequest, 13, {}) == FetchRequest()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "FetchRequest: an object"),
        ({"nothing": 1}, "FetchRequest: version 13 has no field 'nothing'"),
        ({"forgotten": 1}, "no field 'forgotten'"),
        ({"max_wait_ms": "soon"}, "FetchRequest.max_wait_ms: an int32"),
        ({"max_wait_ms": True}, "FetchRequest.max_wait_ms: an int32"),
        ({"max_wait_ms": 1 << 31}, "FetchRequest.max_wait_ms: an int32"),
        ({"max_wait_ms": 1.0}, "FetchRequest.max_wait_ms: an int32"),
        ({"topics": None}, "FetchRequest.topics: null"),
        ({"topics": {}}, "FetchRequest.topics: a list"),
        ({"topics": [1]}, r"FetchRequest.topics\[0\]: an object"),
        ({"topics": [{"topic_id": "00"}]}, r"FetchRequest.topics\[0\].topic_id: a UUID"),
        ({"topics": [{"topic_id": "0" * 31 + "g"}]}, r"FetchRequest.topics\[0\].topic_id: a UUID"),
        ({"topics": [{"topic": "t"}]}, r"FetchRequest.topics\[0\]: version 13 has no field 'topic'"),
        ({"rack_id": 5}, "FetchRequest.rack_id: a str"),
    ],
)
def test_a_bad_value_is_named(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        jsonvalue.from_value(FetchRequest, 13, value)


def test_bad_bytes_are_named() -> None:
    for records in ("01ff", "hex:0", "hex:zz", 5):
        value = {"topic_data": [{"name": "t", "partition_data": [{"records": records}]}]}
        with pytest.raises(ValueError, match=r"partition_data\[0\].records"):
            jsonvalue.from_value(ProduceRequest, 9, value)


def test_versions_that_do_not_exist() -> None:
    with pytest.raises(ValueError, match="versions 0-13"):
        jsonvalue.to_value(MetadataRequest(), 99)
