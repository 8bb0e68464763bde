"""Random messages of any class and version, generated from the schema; and Kafka's own, for comparison."""

import gzip
import json
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from barnabas.wire import catalogue
from barnabas.wire.schema import Field, Message, Struct, is_flexible, versions_of
from barnabas.wire.source import Layout

GOLDEN = Path(__file__).parent.parent / "data" / "golden"

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 16, "uint32": 32}
_TEXTS = ("", "a", "topic-1", "påskägg", "日本語", "😀", "x" * 126, "y" * 127, "z" * 300)
_MOST_ITEMS = 3


class Golden(NamedTuple):
    name: str
    version: int
    raw: bytes
    value: dict[str, Any]
    has_unknown_tags: bool = False
    """Fields that its value does not have, since no version of ours knows them."""

    @property
    def cls(self) -> type[Message]:
        return catalogue.message_class(self.name)


@cache
def golden() -> tuple[Golden, ...]:
    """Messages as Kafka's own serializer wrote them: each version of each, and some of random values."""
    rows: list[dict[str, Any]] = []
    for name in ("messages.jsonl.gz", "random_messages.jsonl.gz"):
        with gzip.open(GOLDEN / name, "rt", encoding="utf-8") as lines:
            rows += [json.loads(line) for line in lines]
    return tuple(
        Golden(row["message"], row["version"], bytes.fromhex(row["hex"]), row["value"], row.get("unknown", False))
        for row in rows
    )


def every_version() -> list[tuple[type[Message], int]]:
    classes = [catalogue.message_class(name) for name in catalogue.names()]
    return [(cls, version) for cls in classes for version in versions_of(cls).all()]


def random_message(cls: type[Message], version: int, random: Random) -> Any:
    return _struct(cls, Layout(version, is_flexible(cls, version)), random)


def _struct(cls: type[Struct], layout: Layout, random: Random) -> Struct:
    values = {}
    for field in layout.present(cls):
        if layout.is_tagged(field) and random.random() < 0.5:
            continue
        values[field.name] = _value(field, layout, random)
    return cls(**values)


def _value(field: Field, layout: Layout, random: Random) -> Any:
    if layout.is_nullable(field) and random.random() < 0.25:
        return None
    if field.kind == "array":
        # Numbers are cheap, and counts above 126 need a second byte.
        most = 140 if field.struct is None and random.random() > 0.98 else _MOST_ITEMS
        return [_single(field, field.element, layout, random) for _ in range(random.randint(0, most))]
    return _single(field, field.kind, layout, random)


def _single(field: Field, kind: str, layout: Layout, random: Random) -> Any:
    match kind:
        case "struct":
            assert field.struct is not None
            return _struct(field.struct, layout, random)
        case "str":
            return random.choice(_TEXTS)
        case "bytes" | "records":
            return random.randbytes(random.choice((0, 1, 20, 126, 127, 300)))
        case "uuid":
            return random.randbytes(16)
        case "bool":
            return random.random() < 0.5
        case "float64":
            return random.choice((0.0, -1.5, 1e300, float("inf")))
    return _number(kind, random)


def _number(kind: str, random: Random) -> int:
    bits = _BITS[kind]
    lowest, highest = (0, (1 << bits) - 1) if kind[0] == "u" else (-(1 << bits - 1), (1 << bits - 1) - 1)
    return random.choice((lowest, highest, 0, 1, random.randint(lowest, highest)))
