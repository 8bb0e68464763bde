"""Why an offset has no row: asked of the broker when a batch is committed, as long as it knows."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from barnabas.client.wire import BrokerError, Client, ClientError
from barnabas.model.ids import ZERO_UUID, TopicPartition, uuid_text
from barnabas.spark.client_settings import connect
from barnabas.spark.tables import runs
from barnabas.spark.tables.errors import TopicRecreated
from barnabas.spark.tables.runs import Runs
from barnabas.spark.tables.state import Gap, TableState
from barnabas.spark.tables.topic import Window, bounds_of, window_at

SMALLEST_WINDOW_BYTES = 4 * 1024
LARGEST_WINDOW_BYTES = 4 * 1024 * 1024
"""Lone holes are asked about one by one; where they lie close together, everything between is read in large pieces."""

TIMEOUT_MS = "10000"
PATIENCE_S = 10.0
"""A commit does not wait longer for explanations: it goes through without them."""
ENOUGH_FILTERED = 10_000
"""So many records without a row in one partition, and the query has a filter: nobody wants all of them looked at."""

_log = logging.getLogger("barnabas.spark")


class Topics:
    """What the sink asks brokers about the topics of a batch. Without a broker it knows nothing and says so."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        self._kafka = {"default.api.timeout.ms": TIMEOUT_MS, **kafka} if kafka else {}
        self._client: Client | None = None
        self._spent_s = 0.0

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _connected(self) -> Client | None:
        if self._client is None and self._kafka:
            self._client = connect(self._kafka)
        return self._client

    def ids(self, topics: Sequence[str]) -> dict[str, str]:
        """The ids of those that there are; of none where no broker answers."""
        client = self._connected()
        if client is None or not topics:
            return {}
        try:
            found = client.load(topics)
        except (ClientError, BrokerError) as error:
            _log.warning("the topics' ids are not known, so a recreated topic would not be noticed: %s", error)
            return {}
        return {name: uuid_text(info.topic_id) for name, info in found.items() if info.topic_id != ZERO_UUID}

    def explain(self, partition: TopicPartition, holes: Sequence[tuple[int, int]]) -> list[Gap]:
        """Every offset of the holes, in runs with one kind each."""
        client = self._connected()
        if client is None:
            return [Gap(start, end, "unknown") for start, end in holes]
        started = time.monotonic()
        try:
            return explain(client, partition, holes, patience_s=PATIENCE_S - self._spent_s)
        except (ClientError, BrokerError) as error:
            _log.warning("gaps of %s stay unexplained: %s", partition, error)
            return [Gap(start, end, "unknown") for start, end in holes]
        finally:
            self._spent_s += time.monotonic() - started


def without_recreated(state: TableState, now: Mapping[str, str], table: str, *, fail: bool) -> TableState:
    """The state without the offsets of topics that were deleted and created again. Raises TopicRecreated."""
    known = state.topics
    for topic in [topic for topic, topic_id in now.items() if known.get(topic, topic_id) != topic_id]:
        reason = (
            f"the topic {topic} was deleted and created again (its id was {known[topic]} and is {now[topic]}): its "
            f"offsets mean other records than those in the table {table}"
        )
        if fail:
            raise TopicRecreated(
                f"{reason}; write it to another table, or set failOnDataLoss to false on the sink to add its records "
                "to those of the deleted topic"
            )
        _log.warning("%s; its records are added to those of the deleted topic, for failOnDataLoss is false", reason)
        state = state.without_topic(topic)
    return state


def explain(
    client: Client, partition: TopicPartition, holes: Sequence[tuple[int, int]], patience_s: float = PATIENCE_S
) -> list[Gap]:
    """What is not looked at in time, or lies behind the topic's end, stays unknown."""
    deadline = time.monotonic() + patience_s
    filtered = 0
    log_start_offset = bounds_of(client, partition).log_start_offset
    wanted = runs.of_bounds(holes)
    deleted = runs.intersect(wanted, runs.of_bounds([(0, log_start_offset)]))
    found = [Gap(start, end, "deleted") for start, end in runs.bounds(deleted)]
    open_holes = runs.subtract(wanted, deleted)
    size = SMALLEST_WINDOW_BYTES
    while open_holes and filtered < ENOUGH_FILTERED and time.monotonic() < deadline:
        window = window_at(client, partition, open_holes.start, open_holes.end, size)
        if window is None:
            break
        inside = runs.intersect(open_holes, runs.of_bounds([(window.start, window.end)]))
        kinds = classify(inside, window)
        filtered += sum(gap.end - gap.start for gap in kinds if gap.kind == "filtered")
        found += kinds
        open_holes = runs.subtract(open_holes, runs.of_bounds([(window.start, window.end)]))
        is_near = bool(open_holes) and open_holes.start - window.end <= window.end - window.start
        size = min(size * 2, LARGEST_WINDOW_BYTES) if is_near else SMALLEST_WINDOW_BYTES
    found += [Gap(start, end, "unknown") for start, end in runs.bounds(open_holes)]
    return sorted(found)


def classify(holes: Runs, window: Window) -> list[Gap]:
    """Offsets of one window that have no row."""
    kinds = {
        "control": runs.intersect(holes, window.control),
        "aborted": runs.subtract(runs.intersect(holes, window.offsets), window.committed),
        "filtered": runs.intersect(holes, window.committed),
    }
    rest = holes
    for part in kinds.values():
        rest = runs.subtract(rest, part)
    kinds["compacted"] = rest
    return [Gap(start, end, kind) for kind, part in kinds.items() for start, end in runs.bounds(part)]
