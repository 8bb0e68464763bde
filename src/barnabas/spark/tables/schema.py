"""From Spark's types to a table's, and what may change from one batch to the next: columns are added, never changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark

from barnabas.spark.tables.errors import SchemaChanged

UTC_TIMESTAMP = pa.timestamp("us", tz="UTC")

_PLAIN: dict[type[spark.DataType], pa.DataType] = {
    spark.BooleanType: pa.bool_(),
    spark.ByteType: pa.int8(),
    spark.ShortType: pa.int16(),
    spark.IntegerType: pa.int32(),
    spark.LongType: pa.int64(),
    spark.FloatType: pa.float32(),
    spark.DoubleType: pa.float64(),
    spark.StringType: pa.string(),
    spark.BinaryType: pa.binary(),
    spark.DateType: pa.date32(),
    spark.TimestampType: UTC_TIMESTAMP,
    spark.TimestampNTZType: pa.timestamp("us"),
}


def from_spark(schema: spark.StructType, table_format: str) -> pa.Schema:
    """The columns as the table holds them, all of them nullable. Raises SchemaChanged for what no table can hold."""
    if not schema.fields:
        raise SchemaChanged("the rows have no columns")
    fields = [pa.field(item.name, _arrow(item.dataType, item.name)) for item in schema.fields]
    _check_names([item.name for item in fields])
    return for_format(pa.schema(fields), table_format)


def _check_names(names: list[str]) -> None:
    lower = [name.lower() for name in names]
    twice = sorted({name for name in names if lower.count(name.lower()) > 1})
    if twice:
        raise SchemaChanged(f"columns of a table cannot differ in case alone: {', '.join(twice)}")


def _arrow(kind: spark.DataType, path: str) -> pa.DataType:
    if isinstance(kind, spark.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, spark.ArrayType):
        return pa.list_(pa.field("element", _arrow(kind.elementType, f"{path}.element")))
    if isinstance(kind, spark.MapType):
        return pa.map_(_arrow(kind.keyType, f"{path}.key"), _arrow(kind.valueType, f"{path}.value"))
    if isinstance(kind, spark.StructType):
        return pa.struct([pa.field(item.name, _arrow(item.dataType, f"{path}.{item.name}")) for item in kind.fields])
    for known, arrow in _PLAIN.items():
        if isinstance(kind, known):
            return arrow
    raise SchemaChanged(f"the column {path} has the type {kind.simpleString()}, which a table cannot hold: cast it")


def for_format(schema: pa.Schema, table_format: str) -> pa.Schema:
    """As a format's tables hold the columns: Iceberg has no whole numbers below 32 bits."""
    return pa.schema([pa.field(item.name, _plain(item.type, table_format == "iceberg")) for item in schema])


def _plain(kind: pa.DataType, widen: bool) -> pa.DataType:
    """Without nullability, without large offsets, times in UTC: what readers of every kind agree on."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(item.name, _plain(item.type, widen)) for item in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", _plain(kind.value_type, widen)))
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type, widen), _plain(kind.item_type, widen))
    if widen and (pa.types.is_int8(kind) or pa.types.is_int16(kind)):
        return pa.int32()
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return UTC_TIMESTAMP
    return kind


def merge(table: pa.Schema, rows: pa.Schema, *, add_columns: bool, name: str) -> pa.Schema:
    """The table's schema with the rows' new columns at its end. Raises SchemaChanged that names the column."""
    added: list[pa.Field] = []
    for item in rows:
        index = table.get_field_index(item.name)
        if index < 0:
            _check_case(table, item.name, name)
            added.append(item)
        elif not _fits(item.type, table.field(index).type):
            raise SchemaChanged(
                f"the column {item.name} is {item.type}, but {table.field(index).type} in the table {name}: "
                "the type of a column cannot change; cast it, or give it another name"
            )
    if added and not add_columns:
        names = ", ".join(item.name for item in added)
        raise SchemaChanged(f"the table {name} has no column {names}: set mergeSchema to true to add it")
    return pa.schema([*table, *added])


def _check_case(table: pa.Schema, column: str, name: str) -> None:
    near = [known for known in table.names if known.lower() == column.lower()]
    if near:
        raise SchemaChanged(f"the column {column} is named {near[0]} in the table {name}: they differ in case alone")


_WIDER: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_int8,
    pa.types.is_int16,
    pa.types.is_int32,
    pa.types.is_int64,
)


def _fits(new: pa.DataType, old: pa.DataType) -> bool:
    """Whether every value of the new type is one of the old."""
    if new.equals(old):
        return True
    if pa.types.is_decimal(new) and pa.types.is_decimal(old):
        return bool(new.scale == old.scale and new.precision <= old.precision)
    if pa.types.is_float32(new) and pa.types.is_float64(old):
        return True
    ranks = [next((rank for rank, test in enumerate(_WIDER) if test(kind)), None) for kind in (new, old)]
    return ranks[0] is not None and ranks[1] is not None and ranks[0] < ranks[1]


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with exactly the columns of the schema; those they do not have are null."""
    columns: list[Any] = []
    for item in schema:
        index = batch.schema.get_field_index(item.name)
        if index < 0:
            columns.append(pa.nulls(batch.num_rows, item.type))
            continue
        column = batch.column(index)
        columns.append(column if column.type.equals(item.type) else column.cast(item.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


TRACKED = ("topic", "partition", "offset")


def has_offsets(schema: pa.Schema) -> bool:
    """Whether rows say which record of which partition they come from."""
    tests = (pa.types.is_string, pa.types.is_integer, pa.types.is_int64)
    places = [schema.get_field_index(name) for name in TRACKED]
    return all(place >= 0 and test(schema.field(place).type) for place, test in zip(places, tests, strict=True))
