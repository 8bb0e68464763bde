"""Avro and JSON columns in Spark: the modes, and dead letters on their way to a topic."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.client.wire import Client
from barnabas.client.wire.admin import create_topic
from barnabas.testing import EmbeddedBroker
from tests.spark.conftest import Reading
from tests.spark.test_sink import stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

fastavro = pytest.importorskip("fastavro")

FIELDS: dict[str, Any] = {
    "id": "long",
    "name": "string",
    "price": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    "at": {"type": "long", "logicalType": "timestamp-millis"},
    "tags": {"type": "array", "items": "string"},
    "counts": {"type": "map", "values": "int"},
    "note": ["null", "string"],
    "kind": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]},
    "place": {"type": "record", "name": "Place", "fields": [{"name": "x", "type": "double"}]},
}
SCHEMA = json.dumps(
    {"type": "record", "name": "Order", "fields": [{"name": name, "type": kind} for name, kind in FIELDS.items()]}
)


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "name": f"name {number}",
        "price": Decimal(number) / 100,
        "at": datetime.fromtimestamp(1_700_000_000 + number, UTC),
        "tags": ["x"] * (number % 3),
        "counts": {"a": number},
        "note": None if number % 2 else "note",
        "kind": "AB"[number % 2],
        "place": {"x": number / 2},
    }


OLD_FIELDS = [{"name": "name", "type": "string"}, {"name": "id", "type": "int"}]
NEW_FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "name", "type": "string"},
    {"name": "note", "type": "string", "default": "none"},
]


def encode(row: dict[str, Any], schema: str = SCHEMA) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(schema)), row)
    return stream.getvalue()


@pytest.fixture
def mixed(spark: SparkSession) -> DataFrame:
    """Ten orders, a null, and two values that are no orders."""
    made: list[bytes | None] = [encode(order(number)) for number in range(10)]
    made += [None, b"\x02\x08abc", b"garbage"]
    return spark.createDataFrame([(n, value) for n, value in enumerate(made)], "n int, value binary").repartition(2)


class TestAvro:
    def test_types_and_null_mode(self, mixed: DataFrame) -> None:
        from barnabas.spark.values import from_avro

        decoded = mixed.select("n", from_avro("value", SCHEMA, mode="null").alias("row"))
        assert decoded.schema["row"].dataType.simpleString() == (
            "struct<id:bigint,name:string,price:decimal(9,2),at:timestamp,tags:array<string>,counts:map<string,int>,"
            "note:string,kind:string,place:struct<x:double>>"
        )
        found = {row["n"]: row["row"] for row in decoded.collect()}
        for number in range(10):
            wanted = order(number)
            made = found[number].asDict(recursive=True)
            assert made.pop("at").timestamp() == wanted.pop("at").timestamp()
            assert made == wanted
        assert [found[number] for number in (10, 11, 12)] == [None, None, None]

    def test_fail_mode_tells_the_reason(self, mixed: DataFrame) -> None:
        from barnabas.spark.values import from_avro

        with pytest.raises(Exception, match=r"AvroError: field name: the value ends before the field does"):
            mixed.filter("n = 11").select(from_avro("value", SCHEMA)["id"]).collect()
        assert mixed.filter("n < 11").select(from_avro("value", SCHEMA)["id"].alias("id")).count() == 11

    def test_fields_as_columns(self, mixed: DataFrame) -> None:
        from barnabas.spark.values import decode_avro

        found = {row["n"]: row for row in decode_avro(mixed, SCHEMA, keep=["n"], mode="null").collect()}
        assert list(found[0].asDict()) == ["n", *FIELDS]
        assert [found[number]["id"] for number in range(13)] == [*range(10), None, None, None]
        assert found[4]["place"]["x"] == 2.0
        with pytest.raises(Exception, match="AvroError: field name: the value ends before"):
            decode_avro(mixed.filter("n = 11"), SCHEMA).collect()
        with pytest.raises(ValueError, match="keep names id"):
            decode_avro(mixed.withColumnRenamed("n", "id"), SCHEMA, keep=["id"])

    def test_and_back(self, mixed: DataFrame) -> None:
        from pyspark.sql import functions as sf

        from barnabas.spark.values import from_avro, to_avro

        decoded = mixed.filter("n < 11").select("value", from_avro("value", SCHEMA).alias("row"))
        again = decoded.select("value", to_avro("row", SCHEMA, schema_id=7).alias("again"))
        rows = again.collect()
        assert len(rows) == 11
        for row in rows:
            assert row["again"] == (None if row["value"] is None else b"\x00\x00\x00\x00\x07" + row["value"])
        without = decoded.select(sf.struct(sf.lit(1).alias("id")).alias("row"))
        with pytest.raises(Exception, match="the schema's field name is missing in the column"):
            without.select(to_avro("row", SCHEMA)).collect()

    def test_bad_arguments(self, spark: SparkSession) -> None:
        from barnabas.spark.values import from_avro, from_json_checked, to_avro

        with pytest.raises(ValueError, match="mode is 'nul': fail, null or deadletter is right"):
            from_avro("value", SCHEMA, mode="nul")
        with pytest.raises(ValueError, match="framing is 'x'"):
            from_avro("value", SCHEMA, framing="x")
        with pytest.raises(ValueError, match="writer_schemas is missing: framing confluent needs the schemas"):
            from_avro("value", SCHEMA, framing="confluent")
        with pytest.raises(ValueError, match="writer_schemas is for framing confluent"):
            from_avro("value", SCHEMA, writer_schemas={1: SCHEMA})
        with pytest.raises(ValueError, match="ids as numbers"):
            from_avro("value", SCHEMA, framing="confluent", writer_schemas={"1": SCHEMA})  # type: ignore[dict-item]
        with pytest.raises(ValueError, match="no record"):
            from_avro("value", '"int"')
        with pytest.raises(ValueError, match="mode is 'deadletter': fail or null is right"):
            to_avro("value", SCHEMA, mode="deadletter")
        with pytest.raises(ValueError, match="mode is 'x'"):
            from_json_checked("value", "a int", mode="x")

    @pytest.mark.parametrize("by_function", [False, True])
    def test_values_of_an_older_schema_are_resolved_by_their_id(self, spark: SparkSession, by_function: bool) -> None:
        from barnabas.spark.values import decode_avro, from_avro

        old = json.dumps({"type": "record", "name": "Order", "fields": OLD_FIELDS})
        new = json.dumps({"type": "record", "name": "Order", "fields": NEW_FIELDS})
        values = [
            b"\x00\x00\x00\x00\x03" + encode({"name": "old", "id": 1}, old),
            b"\x00\x00\x00\x00\x07" + encode({"id": 2, "name": "new", "note": "x"}, new),
            b"\x00\x00\x00\x00\x08" + encode({"id": 3, "name": "?", "note": "x"}, new),
        ]
        df = spark.createDataFrame([(value,) for value in values], "value binary").repartition(2)
        known = {3: old, 7: new}
        schemas = (lambda schema_id: known[schema_id]) if by_function else known
        options: Any = {"framing": "confluent", "writer_schemas": schemas, "mode": "null"}
        column = df.select(from_avro("value", new, **options).alias("row")).collect()
        found = {tuple(row["row"]) if row["row"] else None for row in column}
        assert found == {(1, "old", "none"), (2, "new", "x"), None}
        columns = decode_avro(df, new, **options).collect()
        assert {tuple(row) for row in columns} == {(1, "old", "none"), (2, "new", "x"), (None, None, None)}

    def test_dead_letters_go_to_a_topic_of_their_own(
        self,
        reading: Reading,
        client: Client,
        broker: EmbeddedBroker,
        topic: str,
        new_topic: Callable[[], str],
        fill: Callable[..., None],
    ) -> None:
        from barnabas.spark.values import from_avro, split_deadletters

        target = new_topic()
        create_topic(client, target, partitions=1)
        framed = b"\x00\x00\x00\x00\x01"
        unknown = b"\x00\x00\x00\x00\x02" + encode(order(9))
        rows = [(b"k%d" % number, framed + encode(order(number))) for number in range(5)]
        fill(topic, [*rows, (b"bad", b"oops"), (b"none", None), (b"unknown", unknown)], headers=[("h", b"x")])
        df = reading.batch(subscribe=topic, includeHeaders=True)
        decoded = df.withColumn(
            "order", from_avro("value", SCHEMA, mode="deadletter", framing="confluent", writer_schemas={1: SCHEMA})
        )
        good, bad = split_deadletters(decoded, "order")
        assert sorted(row["order"]["id"] if row["order"] else -1 for row in good.collect()) == [-1, 0, 1, 2, 3, 4]
        writer = bad.write.format("barnabas").option("kafka.bootstrap.servers", broker.bootstrap_servers)
        writer.option("topic", target).mode("append").save()
        letter, other = sorted(stored(client, target)[0], key=lambda found: found.key or b"")
        assert other.value == unknown
        reason = b"the schema that wrote the value is not known (schema id 2)"
        assert dict(other.headers)["deadletter.reason"] == reason
        headers = dict(letter.headers)
        assert (letter.key, letter.value) == (b"bad", b"oops")
        assert b"no schema id in front" in (headers.pop("deadletter.reason") or b"")
        assert headers.pop("deadletter.timestamp") is not None
        assert headers == {
            "h": b"x",
            "deadletter.topic": topic.encode(),
            "deadletter.partition": b"0",
            "deadletter.offset": b"5",
        }


class TestJson:
    @pytest.fixture
    def lines(self, spark: SparkSession) -> DataFrame:
        texts = ['{"a": 1, "b": "x"}', '{"a": "no number"}', "{", None, "{}", ""]
        made = [(n, None if text is None else text.encode()) for n, text in enumerate(texts)]
        return spark.createDataFrame(made, "n int, value binary")

    def test_null(self, lines: DataFrame) -> None:
        from barnabas.spark.values import from_json_checked

        decoded = lines.select("n", from_json_checked("value", "a int, b string", mode="null").alias("row"))
        found = {row["n"]: row["row"] and tuple(row["row"]) for row in decoded.collect()}
        assert found == {0: (1, "x"), 1: None, 2: None, 3: None, 4: (None, None), 5: None}

    def test_deadletter(self, lines: DataFrame) -> None:
        from barnabas.spark.values import from_json_checked, split_deadletters

        decoded = lines.withColumn("row", from_json_checked("value", "a int, b string", mode="deadletter"))
        good, bad = split_deadletters(decoded, "row")
        assert sorted(row["n"] for row in good.collect()) == [0, 3, 4]
        found = sorted((bytes(row["value"]), bytes(row["headers"][0]["value"])) for row in bad.collect())
        assert found[2] == (b'{"a": "no number"}', b'no JSON of the schema: {"a": "no number"}')
        assert [value for value, _ in found] == [b"", b"{", b'{"a": "no number"}']

    def test_fail(self, lines: DataFrame) -> None:
        from barnabas.spark.values import from_json_checked

        with pytest.raises(Exception, match="MALFORMED_RECORD_IN_PARSING"):
            lines.filter("n = 1").select(from_json_checked("value", "a int")["a"]).collect()
