"""Avro values behind Confluent's framing: a zero byte, the id of the schema that wrote the value, and the value.

    decoder = FramedDecoder(reader_schema, {7: reader_schema, 9: older_schema})
    decoded = decoder.decode(column)

The id decides how a value is read. Where the writer's schema lays out bytes as the reader's does, the reader's decoder
takes the value as it is. Otherwise Avro's schema resolution applies (``avro_resolution``). A value whose id is not
known is a fault: bytes of another schema decode to wrong values more often than they fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from barnabas.spark.avro import AvroDecoder, AvroError, Decoded, Fault, Reason
from barnabas.spark.avro_resolution import Resolver, Unresolvable

FRAME_BYTES = 5
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
