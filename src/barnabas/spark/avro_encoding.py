"""Arrow structs to Avro values by a given schema: the way back of ``avro``.

Columns are found by the names of the schema's fields and cast to its types. A row that the schema cannot hold, for a
null where it has none or a symbol that it does not know, becomes null and is reported. ``_avro.c`` writes, or fastavro
where that was not built; ``avro.NATIVE`` tells which is in force.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from barnabas.spark import avro
from barnabas.spark.avro import AvroError, Fault, RawFault, Reason
from barnabas.spark.avro_schema import AvroSchemaError, Kind, Node, compile_program, parse

if TYPE_CHECKING:
    from barnabas.spark.avro_fallback import Codec

_SCHEMA_ID = Struct(">bI")

_Source: TypeAlias = tuple[Any, Any, Any, int, int] | None


class AvroEncoder:
    def __init__(self, schema: str, *, schema_id: int | None = None) -> None:
        """``schema_id`` is put before each value, as Confluent's registry has it. Raises AvroSchemaError."""
        self._root = parse(schema)
        self._program = compile_program(self._root)
        self._prefix = b"" if schema_id is None else _SCHEMA_ID.pack(0, schema_id)
        self._codec = avro.new_codec(self._program)
        self._fallback: Codec | None = None

    @property
    def arrow_type(self) -> pa.StructType:
        return self._root.arrow

    def encode(self, structs: pa.StructArray, *, stops_at_fault: bool = False) -> tuple[pa.Array, list[Fault]]:
        """A binary column, null where the struct is null or at fault. Raises AvroError for the first, where asked."""
        fitted = _fitted(structs, self._root)
        array, raw = self._encode_native(fitted) if self._codec is not None else self._encode_fallback(fitted)
        faults = [self._fault(fault) for fault in raw]
        if faults and stops_at_fault:
            raise AvroError(str(faults[0]))
        return array, faults

    def _encode_native(self, structs: pa.StructArray) -> tuple[pa.Array, list[RawFault]]:
        sources: list[_Source] = [None] * len(self._program.nodes)
        _collect(structs, self._root, sources)
        null_count, *memory, faults = self._codec.encode(len(structs), sources, self._prefix)
        valid, offsets, data = map(pa.py_buffer, memory)
        buffers = [valid if null_count else None, offsets, data]
        return pa.Array.from_buffers(pa.binary(), len(structs), buffers, null_count=null_count), faults

    def _encode_fallback(self, structs: pa.StructArray) -> tuple[pa.Array, list[RawFault]]:
        from barnabas.spark.avro_fallback import Codec  # noqa: PLC0415 - fastavro is for where there is no native codec

        if self._fallback is None:
            self._fallback = Codec(self._root)
        return self._fallback.encode(structs, self._prefix)

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
