"""Which transactions make up a batch, stored as the offset of a group: the batch's number + 1, the rest as metadata.

Brokers limit the metadata of an offset (offset.metadata.max.bytes, 4096), so a long text goes in pieces to several
groups, all in one transaction. The offsets are those of partition 0 of a topic that the batch was written to: where
that is deleted, the decision goes with the rows it is about.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.client.wire.client import Client
from barnabas.client.wire.groups import committed_offsets
from barnabas.client.wire.transactional import MarkedOffset, TransactionalProducer, add_offsets
from barnabas.model.ids import TopicPartition
from barnabas.spark.exactly_once.names import ExactlyOnceError, TaskTransaction, group_id

PIECE_CHARS = 3_500
READ_ATTEMPTS = 5

SourceOffsets = Mapping[TopicPartition, int]
"""Where the query has come to in its source; all before is in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    sequence: int
    """Grows from decision to decision of an application."""
    query: str
    batch: int
    tasks: tuple[TaskTransaction, ...]
    offsets: SourceOffsets = field(default_factory=dict)

    def is_of(self, query: str, batch: int) -> bool:
        return (self.query, self.batch) == (query, batch)


def write_decision(
    client: Client, driver: TransactionalProducer, application: str, topic: str, decision: Decision
) -> None:
    """Adds it to the driver's transaction. Raises BrokerError."""
    text = _text(decision)
    pieces = [text[start : start + PIECE_CHARS] for start in range(0, len(text), PIECE_CHARS)]
    for number, piece in enumerate(pieces):
        head = _Head(decision.sequence, len(pieces), _mark(decision.query))
        marked = MarkedOffset(decision.batch + 1, f"{head.sequence}.{head.piece_count}.{head.query}:{piece}")
        add_offsets(client, driver, group_id(application, number), {TopicPartition(topic, 0): marked})


def read_decision(client: Client, application: str) -> Decision | None:
    """The newest that is committed. Raises BrokerError or ExactlyOnceError.

    A driver reads it when it has taken over: no other one can be at it then.
    """
    for _ in range(READ_ATTEMPTS):  # for tasks, which read at any time: the driver may be writing one
        first = _newest(client, application)
        if first is None:
            return None
        place, (head, _, text) = first
        for number in range(1, head.piece_count):
            found = _pieces(client, application, number).get(place)
            if found is None or found.head != head:
                break
            text += found.text
        else:
            return _parsed(head.sequence, text)
    raise ExactlyOnceError(f"the offsets of group {group_id(application)} do not fit together")


def last_decided(client: Client, application: str, query: str) -> int | None:
    """The last batch of this query that is decided; None where the last decision is another query's."""
    newest = _newest(client, application)
    return newest[1].batch if newest is not None and newest[1].head.query == _mark(query) else None


class _Head(NamedTuple):
    sequence: int
    piece_count: int
    query: int


class _Piece(NamedTuple):
    head: _Head
    batch: int
    text: str


def _mark(query: str) -> int:
    return zlib.crc32(query.encode())


def _newest(client: Client, application: str) -> tuple[TopicPartition, _Piece] | None:
    found = _pieces(client, application, 0)
    return max(found.items(), key=lambda item: item[1].head.sequence, default=None)


def _pieces(client: Client, application: str, number: int) -> dict[TopicPartition, _Piece]:
    found: dict[TopicPartition, _Piece] = {}
    for place, committed in committed_offsets(client, group_id(application, number)).items():
        head, _, text = committed.metadata.partition(":")
        fields = head.split(".")
        if len(fields) != 3 or not all(map(str.isdigit, fields)):
            raise ExactlyOnceError(
                f"group {group_id(application, number)} has an offset of {place} that is no mark of this sink: "
                "choose another applicationId"
            )
        found[place] = _Piece(_Head(*map(int, fields)), committed.offset - 1, text)
    return found


def _text(decision: Decision) -> str:
    content = {
        "query": decision.query,
        "batch": decision.batch,
        "tasks": [list(task) for task in decision.tasks],
        "offsets": [[*place, offset] for place, offset in sorted(decision.offsets.items())],
    }
    packed = zlib.compress(json.dumps(content, separators=(",", ":")).encode(), 9)
    return base64.b85encode(packed).decode("ascii")


def _parsed(sequence: int, text: str) -> Decision:
    content = json.loads(zlib.decompress(base64.b85decode(text)))
    return Decision(
        sequence=sequence,
        query=content["query"],
        batch=content["batch"],
        tasks=tuple(TaskTransaction(*task) for task in content["tasks"]),
        offsets={TopicPartition(topic, partition): offset for topic, partition, offset in content["offsets"]},
    )
