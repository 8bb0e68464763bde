"""The formats in which ``barnabas consume`` prints a message: its value, in full, JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

from barnabas.cli.output import json_bytes, safe_text, time_text
from barnabas.model.ids import TopicPartition
from barnabas.wire.records import Record

Format: TypeAlias = Callable[[TopicPartition, Record], bytes]


def style_of(style: str) -> Format:
    if style == "json":
        return _as_json
    if style == "full":
        return _in_full
    return _safe_value if sys.stdout.isatty() else _raw_value


def _raw_value(_partition: TopicPartition, record: Record) -> bytes:
    return (record.value or b"") + b"\n"


def _safe_value(_partition: TopicPartition, record: Record) -> bytes:
    return (safe_text(record.value).encode() if record.value is not None else b"") + b"\n"


def _in_full(partition: TopicPartition, record: Record) -> bytes:
    parts = [f"{partition.partition}:{record.offset}", time_text(record.timestamp), f"key={safe_text(record.key)}"]
    parts += [f"{_header_key(key)}={safe_text(value)}" for key, value in record.headers]
    return (" ".join(parts) + f" value={safe_text(record.value)}\n").encode()


def _header_key(key: str) -> str:
    return "header." + safe_text(key.encode("utf-8", "surrogateescape"))


def _as_json(partition: TopicPartition, record: Record) -> bytes:
    entry: dict[str, Any] = {
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **json_bytes("key", record.key),
        **json_bytes("value", record.value),
        "headers": [{"key": key, **json_bytes("value", value)} for key, value in record.headers],
    }
    return json.dumps(entry).encode() + b"\n"
