"""Avro values to Arrow columns by a given schema; a value that cannot be decoded costs its row alone.

    decoder = AvroDecoder(schema_json)
    decoded = decoder.decode(column)  # decoded.array is a StructArray, decoded.faults tells which rows are null and why

    values, faults = AvroEncoder(schema_json).encode(decoded.array)

``AvroEncoder`` finds columns by the names of the schema's fields and casts them to its types; a row that the schema
cannot hold becomes null and is reported. The schema is compiled once and run by ``_avro.c``. Where that was not built,
``avro_fallback`` takes its place; NATIVE tells which is in force, and tests hold the two equal.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from types import ModuleType
from typing import Any, NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from barnabas.spark.avro_schema import AvroSchemaError, Kind, Node, Program, compile_program, parse

_native: ModuleType | None
try:
    import barnabas.spark._avro as _native  # type: ignore[no-redef]
except ImportError:
    _native = None

NATIVE_AVAILABLE = _native is not None
NATIVE = NATIVE_AVAILABLE
"""Whether new decoders and encoders are native; set by ``use``."""

FRAME_BYTES = 5
_PREVIEW_BYTES = 24

RawFault: TypeAlias = tuple[int, int, int, int]
"""Row, reason, node and position."""


class Reason(IntEnum):
    """Why a row is at fault. Numbers below 100 are shared with ``_avro_decode.h`` and ``_avro_encode.h``."""

    SHORT = 1
    VARINT = 2
    LENGTH = 3
    BOOLEAN = 4
    UTF8 = 5
    ENUM = 6
    BRANCH = 7
    DECIMAL = 8
    TIMESTAMP = 9
    TOO_MANY = 10
    TOO_LARGE = 11
    TRAILING = 12
    NOT_FRAMED = 13
    NULL = 14
    UUID = 15
    MEMORY = 16
    UNKNOWN_SCHEMA = 101
    RESOLUTION = 102


_TEXTS = {
    Reason.SHORT: "the value ends before the field does",
    Reason.VARINT: "no number: the value ends within it, or it is too large",
    Reason.LENGTH: "a length that cannot be",
    Reason.BOOLEAN: "neither true nor false",
    Reason.UTF8: "a string that is not UTF-8",
    Reason.ENUM: "a symbol that the enum does not have",
    Reason.BRANCH: "a branch that the union does not have",
    Reason.DECIMAL: "a decimal with more digits than its precision",
    Reason.TIMESTAMP: "a time that microseconds cannot hold",
    Reason.TOO_MANY: "more items than bytes",
    Reason.TOO_LARGE: "more than a column can hold",
    Reason.TRAILING: "bytes follow the record",
    Reason.NOT_FRAMED: "no schema id in front (a zero byte and four more)",
    Reason.NULL: "null, which the schema does not allow",
    Reason.UUID: "not a UUID",
    Reason.MEMORY: "a column's memory is damaged",
    Reason.UNKNOWN_SCHEMA: "the schema that wrote the value is not known",
    Reason.RESOLUTION: "the value cannot be read by the schema",
}


class AvroError(ValueError):
    """A value that its schema does not describe."""


class Fault(NamedTuple):
    row: int
    reason: Reason
    path: str
    place: str
    """Where in the value, and how it begins; or which row it is."""

    def __str__(self) -> str:
        where = f"field {self.path}: " if self.path else ""
        return f"{where}{_TEXTS[self.reason]} ({self.place})"


class Decoded(NamedTuple):
    array: pa.StructArray
    """Null where the value was null or is at fault."""
    faults: list[Fault]


class Codec(Protocol):
    """The native one, or that of ``avro_fallback``."""

    def decode(
        self, values: pa.Array, is_framed: bool, stops_at_fault: bool
    ) -> tuple[pa.StructArray, list[RawFault]]: ...

    def encode(self, structs: pa.StructArray, prefix: bytes) -> tuple[pa.Array, list[RawFault]]: ...


class _NativeCodec:
    def __init__(self, root: Node, program: Program, native: ModuleType) -> None:
        self._root = root
        self._node_count = len(program.nodes)
        self._codec = native.Codec(*program[1:])

    def decode(self, values: pa.Array, is_framed: bool, stops_at_fault: bool) -> tuple[pa.StructArray, list[RawFault]]:
        if not len(values):
            return pa.array([], self._root.arrow), []
        valid, offsets, data = values.buffers()
        columns, faults = self._codec.decode(
            len(values),
            values.offset,
            valid if values.null_count else None,
            offsets,
            b"" if data is None else data,
            is_framed,
            stops_at_fault,
        )
        return _array(self._root, columns), faults

    def encode(self, structs: pa.StructArray, prefix: bytes) -> tuple[pa.Array, list[RawFault]]:
        sources: list[_Source] = [None] * self._node_count
        _collect(structs, self._root, sources)
        null_count, *memory, faults = self._codec.encode(len(structs), sources, prefix)
        valid, offsets, data = map(pa.py_buffer, memory)
        buffers = [valid if null_count else None, offsets, data]
        return pa.Array.from_buffers(pa.binary(), len(structs), buffers, null_count=null_count), faults


def use(native: bool) -> None:
    """Choose the codec for what is made from now on. Asking for the native one where it was not built is an error."""
    global NATIVE  # noqa: PLW0603 - which codec is in force is the module's one state
    if native and _native is None:
        raise RuntimeError("the native Avro codec was not built")
    NATIVE = native


def _new_codec(root: Node, program: Program) -> Codec:
    if NATIVE and _native is not None:
        return _NativeCodec(root, program, _native)
    from barnabas.spark import avro_fallback  # noqa: PLC0415 - it imports this module

    return avro_fallback.Codec(root)


class AvroDecoder:
    """For one thread."""

    def __init__(self, schema: str, *, is_framed: bool = False) -> None:
        """``is_framed``: a schema id stands before each value and is skipped; ``FramedDecoder`` looks at it.

        Raises AvroSchemaError.
        """
        self._is_confluent = is_framed
        self._root = parse(schema)
        self._program: Program = compile_program(self._root)
        self._codec = _new_codec(self._root, self._program)

    @property
    def arrow_type(self) -> pa.StructType:
        return self._root.arrow

    def decode(self, values: pa.Array, *, stops_at_fault: bool = False) -> Decoded:
        """A binary column to structs. Raises AvroError where the first fault is to stop it."""
        if values.type != pa.binary():
            values = values.cast(pa.binary())
        array, raw = self._codec.decode(values, self._is_confluent, stops_at_fault)
        faults = [self._fault(values, fault) for fault in raw]
        if faults and stops_at_fault:
            raise AvroError(str(faults[0]))
        return Decoded(array, faults)

    def _fault(self, values: pa.Array, raw: RawFault) -> Fault:
        row, reason, node, position = raw
        value = values[row].as_py()
        preview = value[:_PREVIEW_BYTES].hex() + ("…" if len(value) > _PREVIEW_BYTES else "")
        place = f"byte {position} of the value {preview}" if value else "a value of no bytes"
        return Fault(row, Reason(reason), self._program.nodes[node].path, place)


def _array(node: Node, columns: list[tuple[int, int, Any, Any, Any]]) -> pa.Array:
    """The column of a node, over the memory that the decoder filled."""
    if node.kind is Kind.OPTIONAL:
        return _array(node.children[0], columns)
    count, null_count, valid, offsets, data = columns[node.index]
    if node.kind is Kind.NULL:
        return pa.nulls(count)
    buffers = [pa.py_buffer(valid) if null_count else None]
    children = [_array(child, columns) for child in node.children]
    if node.kind is Kind.MAP:
        entries = pa.struct([node.arrow.key_field, node.arrow.item_field])
        children = [pa.Array.from_buffers(entries, len(children[0]), [None], children=children)]
    if node.kind not in (Kind.RECORD, Kind.UNION):
        has_data = node.kind not in (Kind.ARRAY, Kind.MAP)
        has_offsets = not has_data or node.arrow in (pa.string(), pa.binary())
        buffers += [pa.py_buffer(offsets)] if has_offsets else []
        buffers += [pa.py_buffer(data)] if has_data else []
    return pa.Array.from_buffers(node.arrow, count, buffers, null_count=null_count, children=children)


_SCHEMA_ID = Struct(">bI")

_Source: TypeAlias = tuple[Any, Any, Any, int, int] | None


class AvroEncoder:
    def __init__(self, schema: str, *, schema_id: int | None = None) -> None:
        """``schema_id`` is put before each value, as Confluent's registry has it. Raises AvroSchemaError."""
        self._root = parse(schema)
        self._program = compile_program(self._root)
        self._prefix = b"" if schema_id is None else _SCHEMA_ID.pack(0, schema_id)
        self._codec = _new_codec(self._root, self._program)

    @property
    def arrow_type(self) -> pa.StructType:
        return self._root.arrow

    def encode(self, structs: pa.StructArray, *, stops_at_fault: bool = False) -> tuple[pa.Array, list[Fault]]:
        """A binary column, null where the struct is null or at fault. Raises AvroError for the first, where asked."""
        array, raw = self._codec.encode(_fitted(structs, self._root), self._prefix)
        faults = [self._fault(fault) for fault in raw]
        if faults and stops_at_fault:
            raise AvroError(str(faults[0]))
        return array, faults

    def _fault(self, raw: RawFault) -> Fault:
        row, reason, node, _ = raw
        return Fault(row, Reason(reason), self._program.nodes[node].path, f"row {row} of its batch")


# Arrow's columns, as the schema wants them


def _fitted(array: pa.Array, node: Node) -> pa.Array:
    """The columns that the schema names, in its order and types. Raises AvroSchemaError where one is missing."""
    if node.kind is Kind.OPTIONAL:
        return _fitted(array, node.children[0])
    if array.type == node.arrow or node.kind not in (Kind.RECORD, Kind.UNION):
        return _cast(array, node)
    if not pa.types.is_struct(array.type):
        raise AvroSchemaError(f"{node.path or 'the column'} is {array.type}: a struct is right")
    missing = [name for name in node.names if array.type.get_field_index(name) < 0]
    if missing:
        within = f"{node.path}." if node.path else ""
        raise AvroSchemaError(f"the schema's field {within}{missing[0]} is missing in the column")
    fields = [array.field(array.type.get_field_index(name)) for name in node.names]
    made = [_fitted(field, child) for field, child in zip(fields, node.children, strict=True)]
    return pa.StructArray.from_arrays(made, fields=list(node.arrow), mask=array.is_null() if array.null_count else None)


def _cast(array: pa.Array, node: Node) -> pa.Array:
    if array.type == node.arrow:
        return array
    try:
        return array.cast(node.arrow)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise AvroSchemaError(f"{node.path} is {array.type}, which does not become {node.arrow}: {error}") from None


def _collect(array: pa.Array, node: Node, sources: list[_Source]) -> None:
    """The memory of each node's column."""
    if node.kind is Kind.OPTIONAL:
        _collect(array, node.children[0], sources)
        return
    if node.kind is Kind.NULL:
        return
    memory: list[Any] = array.buffers()[: 3 if node.arrow in (pa.string(), pa.binary()) else 2]
    valid, *buffers = memory
    if node.kind in (Kind.RECORD, Kind.UNION):
        buffers, children = [], [array.field(index) for index in range(len(node.children))]
    elif node.kind is Kind.MAP:
        children = [array.keys, array.items]
    else:
        children = [array.values] if node.kind is Kind.ARRAY else []
    numbers, data, *_ = [*buffers, None, None]
    # Arrow leaves the offsets of a column without rows out.
    numbers = bytes(4) if numbers is None and not len(array) else numbers
    sources[node.index] = valid if array.null_count else None, numbers, data, array.offset, len(array)
    for child, inner in zip(node.children, children, strict=True):
        _collect(inner, child, sources)
