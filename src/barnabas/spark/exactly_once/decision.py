"""Which transactions make up a batch, stored as the offset of a group: the batch's number + 1, the rest as metadata.

Brokers limit the metadata of an offset (offset.metadata.max.bytes, 4096), so a long text goes in pieces to several
groups, all in one transaction. The offsets are those of partition 0 of a topic that the batch was written to: where
that is deleted, the decision goes with the rows it is about.
"""

from __future__ import annotations

import base64
import json
import time
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
READ_ATTEMPTS = 10

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
    inherited: SourceOffsets = field(default_factory=dict)
    """The offsets of the last decision of the query before this one, whose rows this one leaves out."""

    def offsets_before(self, query: str) -> SourceOffsets:
        """What other queries have written."""
        return self.inherited if self.query == query else self.offsets

    def is_of(self, query: str, batch: int) -> bool:
        return (self.query, self.batch) == (query, batch)


def write_decision(
    client: Client, driver: TransactionalProducer, application: str, topic: str, decision: Decision
) -> None:
    """Adds it to the driver's transaction. Raises BrokerError."""
    text = _text(decision)
    pieces = [text[start : start + PIECE_CHARS] for start in range(0, len(text), PIECE_CHARS)]
    for number, piece in enumerate(pieces):
        marked = MarkedOffset(decision.batch + 1, f"{decision.sequence}.{len(pieces)}:{piece}")
        add_offsets(client, driver, group_id(application, number), {TopicPartition(topic, 0): marked})


def read_decision(client: Client, application: str) -> Decision | None:
    """The newest that is committed. Raises BrokerError or ExactlyOnceError.

    A driver reads it when it has taken over: no other one can be at it then.
    """
    for attempt in range(READ_ATTEMPTS):  # for tasks, which read at any time: one may just have been committed
        time.sleep(0.02 * attempt)
        firsts = _pieces(client, application, 0)
        if not firsts:
            return None
        place, first = max(firsts.items(), key=lambda item: item[1].sequence)
        others = [_pieces(client, application, number).get(place) for number in range(1, first.piece_count)]
        whole = [first, *(piece for piece in others if piece is not None and piece[:2] == first[:2])]
        if len(whole) == first.piece_count:
            return _parsed(first.sequence, "".join(piece.text for piece in whole))
    raise ExactlyOnceError(f"the offsets of group {group_id(application)} do not fit together")


class _Piece(NamedTuple):
    sequence: int
    piece_count: int
    text: str


def _pieces(client: Client, application: str, number: int) -> dict[TopicPartition, _Piece]:
    found: dict[TopicPartition, _Piece] = {}
    for place, committed in committed_offsets(client, group_id(application, number)).items():
        head, _, text = committed.metadata.partition(":")
        fields = head.split(".")
        if len(fields) != 2 or not all(map(str.isdigit, fields)):
            raise ExactlyOnceError(
                f"group {group_id(application, number)} has an offset of {place} that is no mark of this sink: "
                "choose another applicationId"
            )
        found[place] = _Piece(int(fields[0]), int(fields[1]), text)
    return found


def _text(decision: Decision) -> str:
    content = {
        "query": decision.query,
        "batch": decision.batch,
        "tasks": [list(task) for task in decision.tasks],
        "offsets": _listed(decision.offsets),
        "inherited": _listed(decision.inherited),
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
        offsets=_mapped(content["offsets"]),
        inherited=_mapped(content["inherited"]),
    )


def _listed(offsets: SourceOffsets) -> list[list[object]]:
    return [[*place, offset] for place, offset in sorted(offsets.items())]


def _mapped(listed: list[tuple[str, int, int]]) -> SourceOffsets:
    return {TopicPartition(topic, partition): offset for topic, partition, offset in listed}
