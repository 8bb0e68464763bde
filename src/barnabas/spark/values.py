"""Typed values: columns of Avro or JSON bytes to structs, with a choice of what becomes of a value that is neither.

    decoded = df.withColumn("order", from_avro("value", schema_json, mode="deadletter"))
    good, bad = split_deadletters(decoded, "order")

The modes: ``fail`` ends the query with the reason; ``null`` makes the struct null; ``deadletter`` gives a struct of
``value`` and ``error``, of which one is null, and ``split_deadletters`` parts the rows by it. A bad value costs its row
alone. A value that is null is no error: its struct is null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as st
from pyspark.sql.pandas.types import from_arrow_type

from barnabas.spark.avro import AvroDecoder, AvroEncoder
from barnabas.spark.avro_resolution import FramedDecoder, Schemas

FRAMINGS = ("none", "confluent")
MODES = ("fail", "null", "deadletter")

REASON_HEADER = "deadletter.reason"
ORIGIN_HEADERS = {
    "topic": "deadletter.topic",
    "partition": "deadletter.partition",
    "offset": "deadletter.offset",
    "timestamp": "deadletter.timestamp",
}
"""Where a dead letter came from, by the source's columns. Headers hold text."""

_CORRUPT = "_barnabas_corrupt_record"
_MAX_TEXT_IN_REASON = 200

ColumnOrName: TypeAlias = Column | str

Writers: TypeAlias = tuple[tuple[int, str], ...] | Callable[[int], str | None] | None
"""The writers' schemas in a form that can be hashed and pickled; None where values have no framing."""


def from_avro(
    column: ColumnOrName,
    schema_json: str,
    *,
    mode: str = "fail",
    framing: str = "none",
    writer_schemas: Schemas | None = None,
) -> Column:
    """A binary column to structs by an Avro schema.

    ``framing="confluent"``: the id of the writer's schema stands before each value. ``writer_schemas`` has the schemas
    by id, or is a function that executors call with an id; values are read by Avro's schema resolution. A value with an
    id that it does not know is at fault. Raises AvroSchemaError or ValueError for what is not right.
    """
    _check_mode(mode)
    writers = _writers(framing, writer_schemas)
    struct = spark_type(_decoder(schema_json, writers).arrow_type)
    if not hasattr(sf, "arrow_udf"):  # Spark 4.0
        decoded = _pandas_column(column, struct, schema_json, mode, writers)
        return decoded if mode == "deadletter" else decoded["value"]
    returned = _with_error(struct) if mode == "deadletter" else struct
    made: Column = sf.arrow_udf(_arrow_function(schema_json, mode, writers), returnType=returned)(column)
    return made


def decode_avro(
    df: DataFrame,
    schema_json: str,
    *,
    column: str = "value",
    keep: Sequence[str] = (),
    mode: str = "fail",
    framing: str = "none",
    writer_schemas: Schemas | None = None,
) -> DataFrame:
    """The fields of a binary column's records as columns, after those to ``keep``.

    As ``from_avro`` and a select of its fields, at half of Spark's cost: whole batches go to Python and come back, and
    no row is joined with its struct. In mode null, a value that cannot be decoded is a row of nulls beside what is
    kept.
    """
    if mode not in MODES[:2]:
        raise ValueError(f"mode is {mode!r}: fail or null is right; from_avro has deadletter")
    writers = _writers(framing, writer_schemas)
    fields = spark_type(_decoder(schema_json, writers).arrow_type).fields
    twice = [field.name for field in fields if field.name in keep]
    if twice:
        raise ValueError(f"keep names {twice[0]}, which is a field of the record too: rename the column first")
    names = [*keep, *(field.name for field in fields)]

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = _decoder(schema_json, writers).decode(batch.column(column), stops_at_fault=mode == "fail").array
            yield pa.RecordBatch.from_arrays([*(batch.column(name) for name in keep), *found.flatten()], names=names)

    asked = dict.fromkeys([column, *keep])
    return df.select(*asked).mapInArrow(decode, st.StructType([*(df.schema[name] for name in keep), *fields]))


def to_avro(column: ColumnOrName, schema_json: str, *, mode: str = "fail", schema_id: int | None = None) -> Column:
    """Structs to Avro values; fields are found by their names. ``schema_id`` is put in front, as Confluent's framing.

    Modes are fail and null. Needs Spark 4.1. Raises AvroSchemaError or ValueError for what is not right.
    """
    if mode not in MODES[:2]:
        raise ValueError(f"mode is {mode!r}: fail or null is right")
    if not hasattr(sf, "arrow_udf"):
        raise NotImplementedError("to_avro needs Spark 4.1 or later: this Spark has no functions over Arrow columns")
    _encoder(schema_json, schema_id)

    def encode(structs: pa.Array) -> pa.Array:
        return _encoder(schema_json, schema_id).encode(structs, stops_at_fault=mode == "fail")[0]

    made: Column = sf.arrow_udf(encode, returnType=st.BinaryType())(column)
    return made


def from_json_checked(
    column: ColumnOrName, schema: st.StructType | str, mode: str = "fail", options: dict[str, str] | None = None
) -> Column:
    """Spark's from_json with the modes of this module; ``options`` are from_json's own."""
    _check_mode(mode)
    given = options or {}
    struct = schema if isinstance(schema, st.StructType) else _parsed_ddl(schema)
    text = _column(column).cast("string")
    if mode == "fail":
        return sf.from_json(text, struct, {**given, "mode": "FAILFAST"})
    wider = st.StructType([*struct.fields, st.StructField(_CORRUPT, st.StringType())])
    parsed = sf.from_json(text, wider, {**given, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT})
    # As the only item of an array, it is parsed once and looked at many times.
    pair = sf.struct(parsed.alias("parsed"), text.alias("text"))
    return sf.transform(sf.array(pair), lambda item: _checked(item, struct, mode))[0]


def split_deadletters(df: DataFrame, column: str = "decoded") -> tuple[DataFrame, DataFrame]:
    """Rows whose ``column`` was decoded, with the value in its place; and the others, ready for a dead-letter topic.

    The second has the columns of the sink: key and value as they came, and headers with the reason and, where the
    source's columns are there, with topic, partition, offset and timestamp of the record. Headers that it had stay.
    """
    error = sf.col(column)["error"]
    good = df.filter(error.isNull()).withColumn(column, sf.col(column)["value"])
    bad = df.filter(error.isNotNull())
    kept = [sf.col(name) for name in ("key", "value") if name in df.columns]
    return good, bad.select(*kept, _dead_headers(df, error).alias("headers"))


def spark_type(arrow: pa.DataType) -> Any:
    """The Spark type of what a decoder makes."""
    return from_arrow_type(arrow, prefer_timestamp_ntz=True)


def _check_mode(mode: str) -> None:
    if mode not in MODES:
        raise ValueError(f"mode is {mode!r}: {', '.join(MODES[:-1])} or {MODES[-1]} is right")


def _column(column: ColumnOrName) -> Column:
    return sf.col(column) if isinstance(column, str) else column


def _writers(framing: str, given: Schemas | None) -> Writers:
    """Raises ValueError."""
    if framing not in FRAMINGS:
        raise ValueError(f"framing is {framing!r}: {' or '.join(FRAMINGS)} is right")
    if framing == "none":
        if given is not None:
            raise ValueError("writer_schemas is for framing confluent: other values do not say who wrote them")
        return None
    if given is None:
        raise ValueError(
            "writer_schemas is missing: framing confluent needs the schemas of all ids, as in {7: schema_json}, or a "
            "function from an id to its schema; without them, values of another schema would decode to wrong values"
        )
    if callable(given):
        return given
    wrong = next((key for key in given if not isinstance(key, int)), None)
    if wrong is not None or not all(isinstance(schema, str) for schema in given.values()):
        raise ValueError(f"writer_schemas is {dict(given)!r}: ids as numbers, with their schemas as JSON, are right")
    return tuple(sorted(given.items()))


@lru_cache(maxsize=32)
def _decoder(schema_json: str, writers: Writers) -> AvroDecoder | FramedDecoder:
    """Compiled once in each worker."""
    if writers is None:
        return AvroDecoder(schema_json)
    return FramedDecoder(schema_json, writers if callable(writers) else dict(writers))


@lru_cache(maxsize=32)
def _encoder(schema_json: str, schema_id: int | None) -> AvroEncoder:
    return AvroEncoder(schema_json, schema_id=schema_id)


def _with_error(struct: st.StructType) -> st.StructType:
    return st.StructType([st.StructField("value", struct), st.StructField("error", st.StringType())])


def _arrow_function(schema_json: str, mode: str, writers: Writers) -> Callable[[pa.Array], pa.Array]:
    def decode(values: pa.Array) -> pa.Array:
        decoded = _decoder(schema_json, writers).decode(values, stops_at_fault=mode == "fail")
        if mode != "deadletter":
            return decoded.array
        texts: list[str | None] = [None] * len(values)
        for fault in decoded.faults:
            texts[fault.row] = str(fault)
        return pa.StructArray.from_arrays([decoded.array, pa.array(texts, pa.string())], ["value", "error"])

    return decode


def _pandas_column(
    column: ColumnOrName, struct: st.StructType, schema_json: str, mode: str, writers: Writers
) -> Column:
    """Spark 4.0 has no Arrow functions: rows pass through pandas, which is slower. The struct is never null itself."""
    import pandas as pd  # type: ignore[import-untyped,unused-ignore] # noqa: PLC0415 - for old Sparks alone

    function = _arrow_function(schema_json, "deadletter" if mode == "null" else mode, writers)

    def decode(values: pd.Series) -> pd.DataFrame:
        made = function(pa.array(values, pa.binary()))
        if mode == "fail":
            return pd.DataFrame(
                {"value": pd.Series(made.to_pylist(maps_as_pydicts="lossy"), dtype=object), "error": None}
            )
        rows = made.to_pylist(maps_as_pydicts="lossy")
        texts = pd.Series([row["error"] for row in rows], dtype=object)
        return pd.DataFrame({"value": pd.Series([row["value"] for row in rows], dtype=object), "error": texts})

    decode.__annotations__ = {"values": pd.Series, "return": pd.DataFrame}
    make: Any = sf.pandas_udf  # type: ignore[attr-defined]
    made: Column = make(decode, returnType=_with_error(struct))(column)
    return made


def _parsed_ddl(schema: str) -> st.StructType:
    parsed = st.StructType.fromDDL(schema)
    if not isinstance(parsed, st.StructType):
        raise ValueError(f"schema is {schema!r}: fields with their types are right, as in 'id long, name string'")
    return parsed


def _checked(item: Column, struct: st.StructType, mode: str) -> Column:
    parsed, text = item["parsed"], item["text"]
    is_bad = text.isNotNull() & (parsed.isNull() | parsed[_CORRUPT].isNotNull())
    value = sf.when(text.isNotNull() & ~is_bad, sf.struct(*(parsed[name].alias(name) for name in struct.names)))
    if mode == "null":
        return value
    reason = sf.concat(sf.lit("no JSON of the schema: "), sf.substring(text, 1, _MAX_TEXT_IN_REASON))
    return sf.struct(value.alias("value"), sf.when(is_bad, reason).alias("error"))


def _dead_headers(df: DataFrame, error: Column) -> Column:
    added = [_header(REASON_HEADER, error)]
    added += [_header(name, sf.col(origin)) for origin, name in ORIGIN_HEADERS.items() if origin in df.columns]
    if "headers" not in df.columns:
        return sf.array(*added)
    return sf.concat(sf.coalesce(sf.col("headers"), sf.array().cast(_HEADERS)), sf.array(*added))


_HEADERS = "array<struct<key: string, value: binary>>"


def _header(name: str, value: Column) -> Column:
    return sf.struct(sf.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))
