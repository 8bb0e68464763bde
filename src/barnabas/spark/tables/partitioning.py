"""How a table is laid out in folders: by columns as they are, and by year, month, day or hour of a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

IDENTITY = "identity"
TIME_PARTS = {"year": "%Y", "month": "%Y-%m", "day": "%Y-%m-%d", "hour": "%Y-%m-%d-%H"}

_FIELD = re.compile(r"(?:(\w+)\s*\(\s*([^()\s]+)\s*\)|([^(),\s]+))")
_UNSAFE = re.compile(r"[^A-Za-z0-9._=-]")


class PartitionField(NamedTuple):
    column: str
    transform: str = IDENTITY

    @property
    def name(self) -> str:
        """The column that readers see; where a time is cut, one more than the rows have."""
        return self.column if self.transform == IDENTITY else f"{self.column}_{self.transform}"

    def __str__(self) -> str:
        return self.column if self.transform == IDENTITY else f"{self.transform}({self.column})"

    def kind(self, schema: pa.Schema) -> pa.DataType:
        """The type of the column ``name``."""
        if self.transform == IDENTITY:
            return schema.field(self.column).type
        return pa.date32() if self.transform == "day" else pa.string()


Fields: TypeAlias = tuple[PartitionField, ...]
Values: TypeAlias = tuple[str | None, ...]
"""Of the folders that a file lies in, one for each field."""


def parse_fields(text: str) -> Fields:
    """``topic,day(timestamp)``. Raises ValueError."""
    fields: list[PartitionField] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        found = _FIELD.fullmatch(part)
        if found is None:
            raise ValueError(f"{part!r} is neither a column nor year, month, day or hour of one")
        transform = {"date": "day"}.get((found[1] or IDENTITY).lower(), (found[1] or IDENTITY).lower())
        if transform not in (IDENTITY, *TIME_PARTS):
            raise ValueError(f"{found[1]!r} is unknown: year, month, day and hour are right")
        fields.append(PartitionField(found[2] or found[3], transform))
    if len({field.name for field in fields}) < len(fields):
        raise ValueError("a column is named twice")
    return tuple(fields)


def check_fields(fields: Fields, schema: pa.Schema) -> None:
    """Raises ValueError for columns that are not there or cannot be folders."""
    for field in fields:
        if schema.get_field_index(field.column) < 0:
            raise ValueError(f"partitionBy names the column {field.column}, which the rows do not have")
        kind = schema.field(field.column).type
        if field.transform != IDENTITY:
            if not (pa.types.is_timestamp(kind) or (pa.types.is_date(kind) and field.transform != "hour")):
                raise ValueError(f"partitionBy has {field}, but the column {field.column} is {kind}, not a time")
            if schema.get_field_index(field.name) >= 0:
                raise ValueError(f"partitionBy has {field}, but the rows have a column {field.name} already")
        elif not _is_plain(kind):
            hint = f": day({field.column}) would be right" if pa.types.is_timestamp(kind) else ""
            raise ValueError(f"partitionBy names the column {field.column}, whose type {kind} makes no folders{hint}")
    if len(fields) == len(schema):
        raise ValueError("partitionBy names every column: at least one must be left for the files")


def _is_plain(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_integer, pa.types.is_date, pa.types.is_boolean)
    return any(test(kind) for test in tests)


def split(
    batch: pa.RecordBatch, fields: tuple[PartitionField, ...]
) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
    """The rows by folder: the texts of the folder's values, and the rows in their order."""
    if not batch.num_rows:
        return
    if not fields:
        yield (), batch
        return
    columns = [_texts(batch.column(field.column), field) for field in fields]
    codes = np.zeros(batch.num_rows, np.int64)
    for column in columns:
        codes = codes * (len(column.dictionary) + 1) + column.indices.fill_null(-1).to_numpy(zero_copy_only=False) + 1
    if (codes == codes[0]).all():
        yield _values(columns, 0), batch
        return
    order = np.argsort(codes, kind="stable")
    bounds = [0, *(np.flatnonzero(np.diff(codes[order])) + 1).tolist(), len(order)]
    sorted_rows = batch.take(pa.array(order))
    for start, end in pairwise(bounds):
        yield _values(columns, int(order[start])), sorted_rows.slice(start, end - start)


def _texts(column: pa.Array, field: PartitionField) -> pa.DictionaryArray:
    if field.transform not in (IDENTITY, "day"):
        return pc.strftime(column, TIME_PARTS[field.transform]).dictionary_encode()
    if field.transform == "day":
        column = column.cast(pa.date32())  # a division, where strftime goes through the calendar for every row
    encoded = column.dictionary_encode()
    return pa.DictionaryArray.from_arrays(encoded.indices, encoded.dictionary.cast(pa.string()))


def _values(columns: list[pa.DictionaryArray], row: int) -> Values:
    return tuple(column[row].as_py() for column in columns)


def folder(fields: Fields, values: Values) -> str:
    """For formats that note the values elsewhere: nothing that anyone might encode or decode once more."""
    return "".join(_UNSAFE.sub("_", f"{field.name}={value}") + "/" for field, value in zip(fields, values, strict=True))
