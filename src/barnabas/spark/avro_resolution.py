"""Values of one Avro schema read by another: Avro's schema resolution, for values whose writer's schema differs.

Three steps. The writer's own decoder checks each value, so that damaged ones cost their row alone and no length in them
is trusted. ``fastavro`` reads a value by both schemas and writes it again by the reader's. The reader's decoder then
makes columns of it, as of any other value: so both ways lead to the same Arrow types.

``fastavro`` writes a union by the value's Python type, which does not tell an int from a long. Unions of two numbers
that become one column are therefore widened first. Unions with other branches that look alike are not resolved.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from barnabas.spark.avro import FRAME_BYTES, AvroDecoder, AvroError, Decoded, Fault, Reason
from barnabas.spark.avro_schema import AvroSchemaError, Kind, Node, Program, compile_program, parse

MAX_ERROR_TEXT = 200

_ALIKE: tuple[frozenset[Kind], ...] = (
    frozenset({Kind.INT, Kind.LONG, Kind.MILLIS, Kind.FLOAT, Kind.DOUBLE}),
    frozenset({Kind.STRING, Kind.ENUM}),
    frozenset({Kind.BYTES, Kind.DECIMAL, Kind.DECIMAL_FIXED, Kind.FIXED, Kind.UUID}),
    frozenset({Kind.RECORD, Kind.MAP}),
)
_NAMED = frozenset({Kind.RECORD, Kind.ENUM, Kind.FIXED, Kind.DECIMAL_FIXED, Kind.UUID})
"""fastavro keeps the names of these, and so the branch."""


class Unresolvable(ValueError):
    """The reader's schema cannot read what the writer's schema wrote."""


class Resolver:
    """For one thread."""

    def __init__(self, reader: str, writer: str, schema_id: int) -> None:
        """Raises Unresolvable."""
        try:
            reader_program, writer_program = (compile_program(parse(schema)) for schema in (reader, writer))
        except AvroSchemaError as error:
            raise Unresolvable(str(error)) from error
        names = [list(_names(json.loads(schema))) for schema in (reader, writer)]
        self.is_same = names[0] == names[1] and _layout(reader_program) == _layout(writer_program)
        """Whether both schemas lay out values the same, and give them the same names: nothing is to be resolved."""
        if self.is_same:
            return
        _check_unions(reader_program)
        self._schema_id = schema_id
        self._check = AvroDecoder(writer, is_framed=True)
        widened = json.dumps(_widened(json.loads(reader)))
        self._read = AvroDecoder(widened)
        self._writer = _parsed(writer)
        self._reader = _parsed(widened)

    def decode(self, values: pa.Array) -> Decoded:
        """Framed values of the writer's schema to structs of the reader's."""
        faults = self._check.decode(values).faults
        bad = {fault.row for fault in faults}
        resolved: list[bytes | None] = []
        for row, value in enumerate(values.to_pylist()):
            if value is None or row in bad:
                resolved.append(None)
                continue
            try:
                resolved.append(self._resolved(value))
            except Exception as error:  # fastavro raises many kinds, all of which are about this value
                resolved.append(None)
                faults.append(Fault(row, Reason.RESOLUTION, "", self._reason(error)))
        found = self._read.decode(pa.array(resolved, pa.binary()))
        return Decoded(found.array, [*faults, *found.faults])

    def _resolved(self, value: bytes) -> bytes:
        from fastavro import schemaless_reader, schemaless_writer  # noqa: PLC0415 - for values of other schemas alone

        source, target = io.BytesIO(value), io.BytesIO()
        source.seek(FRAME_BYTES)
        found = schemaless_reader(source, self._writer, self._reader, return_named_type=True)
        schemaless_writer(target, self._reader, found)
        return target.getvalue()

    def _reason(self, error: Exception) -> str:
        text = str(error)
        short = text if len(text) <= MAX_ERROR_TEXT else text[:MAX_ERROR_TEXT] + "…"
        return f"schema id {self._schema_id}: {short}"


def _layout(program: Program) -> tuple[Any, ...]:
    nodes = [(node.names, str(node.arrow)) for node in program.nodes]
    return program.table, program.children, program.symbol_ends, program.symbols, nodes


def _names(schema: Any, *, is_root: bool = True) -> Iterator[str]:
    """Of all types, in order: branches of a union are matched by name, even if they have the same fields.

    Not the namespace of the whole: registries and readers often differ in it, and it means nothing for the bytes.
    """
    if isinstance(schema, str):
        yield schema
    elif isinstance(schema, list):
        for branch in schema:
            yield from _names(branch, is_root=False)
    elif isinstance(schema, dict):
        if "name" in schema:
            yield f"{'' if is_root else schema.get('namespace', '')} {schema['name']}"
        for field in schema.get("fields", ()):
            yield from _names(field["type"], is_root=False)
        for name in ("type", "items", "values"):
            yield from _names(schema.get(name, ()), is_root=False)


def _check_unions(program: Program) -> None:
    for node in program.nodes:
        if node.kind is Kind.UNION and any(_are_alike(node.children, group) for group in _ALIKE):
            raise Unresolvable(f"field {node.path}: the branches of its union cannot be told apart by their values")


def _are_alike(branches: list[Node], group: frozenset[Kind]) -> bool:
    kinds = [branch.kind for branch in branches if branch.kind in group]
    return len(kinds) > 1 and not all(kind in _NAMED for kind in kinds)


def _widened(schema: Any) -> Any:
    """With long for a union of int and long, and double for one of float and double: the columns are the same."""
    if isinstance(schema, list):
        for wide, narrow in (("long", "int"), ("double", "float")):
            if {wide, narrow} == {item if isinstance(item, str) else "" for item in schema if item != "null"}:
                return list(dict.fromkeys(wide if item == narrow else item for item in schema))
        return [_widened(item) for item in schema]
    if isinstance(schema, dict):
        return {name: item if name == "default" else _widened(item) for name, item in schema.items()}
    return schema


def _parsed(schema: str) -> Any:
    """As fastavro takes it. Raises Unresolvable."""
    from fastavro import parse_schema  # noqa: PLC0415 - for values of other schemas alone
    from fastavro.schema import SchemaParseException  # noqa: PLC0415

    try:
        parsed: Any = parse_schema(_without_zones(json.loads(schema)))
    except (SchemaParseException, ValueError, TypeError, KeyError) as error:
        raise Unresolvable(str(error)) from error
    for field in _fields(parsed):
        if "default" in field:
            field["default"] = _default(field["type"], field["default"])
    return parsed


def _without_zones(schema: Any) -> Any:
    """Local times as UTC, which is how they are stored, and UUIDs as the strings that they are in columns."""
    if isinstance(schema, list):
        return [_without_zones(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: item if name == "default" else _without_zones(item) for name, item in schema.items()}
    kind = found.get("logicalType")
    if isinstance(kind, str):
        found["logicalType"] = kind.removeprefix("local-")
        if kind == "uuid" and found.get("type") == "string":
            del found["logicalType"]
    return found


def _fields(schema: Any) -> Iterator[dict[str, Any]]:
    """The fields of all records in a schema."""
    if isinstance(schema, list):
        for branch in schema:
            yield from _fields(branch)
    elif isinstance(schema, dict):
        for field in schema.get("fields", ()):
            yield field
            yield from _fields(field["type"])
        for name in ("items", "values", "type"):
            if isinstance(schema.get(name), (dict, list)):
                yield from _fields(schema[name])


def _default(kind: Any, value: Any) -> Any:
    """A field's default as fastavro writes it: JSON has bytes as text, a character for each."""
    if isinstance(kind, list):
        return _default(kind[0], value) if kind else value
    name = kind.get("type") if isinstance(kind, dict) else kind
    if isinstance(name, (dict, list)):
        return _default(name, value)
    if name in ("bytes", "fixed") and isinstance(value, str):
        return value.encode("latin-1")
    if name == "array" and isinstance(value, list):
        return [_default(kind["items"], item) for item in value]
    if name == "map" and isinstance(value, dict):
        return {key: _default(kind["values"], item) for key, item in value.items()}
    if name in ("record", "error") and isinstance(value, dict):
        kinds = {field["name"]: field["type"] for field in kind["fields"]}
        return {key: _default(kinds[key], item) if key in kinds else item for key, item in value.items()}
    return value


_NULL, _UNFRAMED = -1, -2

Schemas: TypeAlias = Mapping[int, str] | Callable[[int], str | None]
"""Writers' schemas in JSON by id. A function gives None, or raises LookupError, for an id that it does not know."""


class FramedDecoder:
    """For one thread."""

    def __init__(self, schema: str, writers: Schemas) -> None:
        """Raises AvroSchemaError for a reader's schema that is not right."""
        self._schema = schema
        self._reader = AvroDecoder(schema, is_framed=True)
        self._look_up: Callable[[int], str | None] = writers if callable(writers) else writers.get
        self._resolvers: dict[int, Resolver | Fault | None] = {}

    @property
    def arrow_type(self) -> pa.StructType:
        return self._reader.arrow_type

    def decode(self, values: pa.Array, *, stops_at_fault: bool = False) -> Decoded:
        """A binary column to structs. Raises AvroError where the first fault is to stop it."""
        if values.type != pa.binary():
            values = values.cast(pa.binary())
        ids = schema_ids(values)
        others = [int(found) for found in np.unique(ids) if found >= 0 and self._resolver(int(found)) is not None]
        if not others:
            return self._reader.decode(values, stops_at_fault=stops_at_fault)
        decoded = self._mixed(values, ids, others)
        if decoded.faults and stops_at_fault:
            raise AvroError(str(decoded.faults[0]))
        return decoded

    def _mixed(self, values: pa.Array, ids: Any, others: list[int]) -> Decoded:
        groups: list[tuple[Callable[[pa.Array], Decoded], Any]] = [
            (self._reader.decode, np.flatnonzero(~np.isin(ids, others)))
        ]
        groups += [(self._decoder_of(other), np.flatnonzero(ids == other)) for other in others]
        parts: list[pa.Array] = []
        faults: list[Fault] = []
        for decode, rows in groups:
            part = decode(values.take(pa.array(rows)))
            parts.append(part.array)
            faults += [fault._replace(row=int(rows[fault.row])) for fault in part.faults]
        order = np.argsort(np.concatenate([rows for _, rows in groups]), kind="stable")
        return Decoded(pa.concat_arrays(parts).take(pa.array(order)), sorted(faults, key=lambda fault: fault.row))

    def _decoder_of(self, schema_id: int) -> Callable[[pa.Array], Decoded]:
        found = self._resolver(schema_id)
        if isinstance(found, Resolver):
            return found.decode
        if found is None:
            return self._reader.decode
        return lambda values: _all_at_fault(values, found, self.arrow_type)

    def _resolver(self, schema_id: int) -> Resolver | Fault | None:
        """None where the writer's schema lays out values as the reader's does; a fault where it cannot be read."""
        if schema_id not in self._resolvers:
            self._resolvers[schema_id] = self._new_resolver(schema_id)
        return self._resolvers[schema_id]

    def _new_resolver(self, schema_id: int) -> Resolver | Fault | None:
        try:
            writer = self._look_up(schema_id)
        except LookupError:
            writer = None
        if writer is None:
            return Fault(0, Reason.UNKNOWN_SCHEMA, "", f"schema id {schema_id}")
        try:
            made = Resolver(self._schema, writer, schema_id)
        except Unresolvable as error:
            return Fault(0, Reason.RESOLUTION, "", f"schema id {schema_id}: {error}")
        return None if made.is_same else made


def _all_at_fault(values: pa.Array, fault: Fault, kind: pa.StructType) -> Decoded:
    return Decoded(pa.nulls(len(values), kind), [fault._replace(row=row) for row in range(len(values))])


def schema_ids(values: pa.Array) -> Any:
    """The id before each value of a binary column; below zero where a value is null or has none."""
    count = len(values)
    _, offsets, data = values.buffers()
    if not count or data is None or not len(data):
        found = np.full(count, _UNFRAMED, np.int64)
    else:
        ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + count + 1].astype(np.int64)
        starts, lengths = ends[:-1], np.diff(ends)
        memory = np.frombuffer(data, np.uint8)
        places = np.where(lengths >= FRAME_BYTES, starts, 0)[:, None] + np.arange(FRAME_BYTES)
        frames = memory[np.minimum(places, len(memory) - 1)].astype(np.int64)
        found = frames[:, 1] << 24 | frames[:, 2] << 16 | frames[:, 3] << 8 | frames[:, 4]
        found[(lengths < FRAME_BYTES) | (frames[:, 0] != 0)] = _UNFRAMED
    if values.null_count:
        found[values.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return found
