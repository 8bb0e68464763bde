"""Records of a batch as items: their fields, and what control records and metadata records say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from barnabas.cli.output import json_bytes
from barnabas.core.metadata import records as metadata
from barnabas.wire import codec, jsonvalue, records
from barnabas.wire.batch import BatchHeader
from barnabas.wire.records import ControlType, Record
from barnabas.wire.schema import Message
from barnabas.wire.stored import raft

_RAFT: dict[ControlType, type[Message]] = {
    ControlType.LEADER_CHANGE: raft.LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: raft.SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: raft.SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: raft.KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: raft.VotersRecord,
}


def show_records(data: bytes, header: BatchHeader, max_bytes: int, *, is_metadata: bool) -> Iterator[dict[str, Any]]:
    """Raises what ``records.decode_batch`` does. Metadata that this build does not know is shown, not an error."""
    for record in records.decode_batch(data, max_bytes=max_bytes):
        item: dict[str, Any] = {"type": "record", "offset": record.offset, "timestamp": record.timestamp}
        if header.is_control:
            item.update(_control(record))
        elif is_metadata:
            item.update(_metadata(record))
        else:
            item.update(json_bytes("key", record.key))
            item.update(json_bytes("value", record.value))
            item["headers"] = [{"key": key, **json_bytes("value", value)} for key, value in record.headers]
        yield item


def _control(record: Record) -> dict[str, Any]:
    kind = records.read_control_type(record)
    if kind is None:
        return {"control": "unknown", "key_hex": (record.key or b"").hex(), "value_hex": (record.value or b"").hex()}
    shown: dict[str, Any] = {"control": kind.name.lower()}
    if kind in (ControlType.ABORT, ControlType.COMMIT):
        shown["coordinator_epoch"] = records.read_coordinator_epoch(record)
        return shown
    value = record.value or b""
    cls, version = _RAFT[kind], int.from_bytes(value[:2], "big", signed=True)
    return {**shown, **_message(cls, version, value, 0)}


def _metadata(record: Record) -> dict[str, Any]:
    value = record.value or b""
    try:
        message = metadata.decode(value)
    except metadata.UnknownRecord as error:
        return {"unknown": str(error), "value_hex": value.hex()}
    except codec.DecodeError as error:
        return {"unreadable": str(error), "value_hex": value.hex()}
    return {"message": type(message).__name__, "version": value[2], "value": jsonvalue.to_value(message, value[2])}


def _message(cls: type[Message], version: int, value: bytes, start: int) -> dict[str, Any]:
    try:
        message, _ = codec.decode(cls, version, value, start)
    except codec.DecodeError as error:
        return {"message": cls.__name__, "unreadable": str(error), "value_hex": value.hex()}
    return {"message": cls.__name__, "version": version, "value": jsonvalue.to_value(message, version)}
