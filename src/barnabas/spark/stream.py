"""Streams on Spark 4.2 and later, which tells a source where a batch starts and how much it may hold."""
# ruff: noqa: N802 -- the names of the methods are Spark's

from __future__ import annotations

import time
from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from barnabas.model.ids import TopicPartition
from barnabas.spark import batch_plan
from barnabas.spark.batch_plan import Limits, Position, View, from_json, to_json
from barnabas.spark.options import SourceOptions
from barnabas.spark.source import BaseStreamReader, report_losses

IDLE_POLL_S = 0.05
"""A query without a trigger asks a hundred times a second whether there is anything new: it is answered less often."""


class StreamReader(BaseStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._query = ""
        self._target: View | None = None
        self._latest: dict[TopicPartition, int] = {}
        self._idle_since = float("-inf")
        self._last_batch_at = float("-inf")

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        if self.options.min_offsets_per_trigger is not None:
            return ReadMinRows(self.options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self.cluster.view()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return to_json(Position(offsets=self._latest)) if self._latest else None

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        time.sleep(max(0.0, self._idle_since + IDLE_POLL_S - time.monotonic()))
        position = self._known(from_json(start))
        self.publish(position)
        end = self._next(position, self._limits(limit))
        if end is position:
            self.flush()  # this may have been the last question
            self._idle_since = time.monotonic()
            return start
        return to_json(end)

    def first_view(self) -> View:
        """A run up to what is available now starts no later than it ends."""
        return self._target or super().first_view()

    def _known(self, position: Position) -> Position:
        """A checkpoint of Spark's own Kafka source names no query."""
        self._query = position.query or self._query or self.new_query()
        return Position(
            offsets=position.offsets,
            topic_ids=position.topic_ids,
            query=self._query,
            is_initial=position.is_initial,
        )

    def _limits(self, limit: ReadLimit) -> Limits:
        if isinstance(limit, ReadAllAvailable):
            return Limits()
        # Spark has no limit of both kinds, so that one comes from the options. A run up to what is available now
        # must get there, however little is left.
        least = None if self._target is not None else self.options.min_offsets_per_trigger
        return Limits(limit.max_rows if isinstance(limit, ReadMaxRows) else None, least)

    def _next(self, start: Position, limits: Limits) -> Position:
        view = self._view(start)
        self._latest = view.latest
        found = batch_plan.advance(start, view)
        report_losses(found.losses, self.options)
        if self._is_too_early(batch_plan.new_records(found, view), limits.min_offsets):
            return start
        return batch_plan.next_position(start, view, found, limits.max_offsets)

    def _view(self, start: Position) -> View:
        known_topics = {partition.topic for partition in start.offsets}
        if self._target is not None:
            self.cluster.check_there(self._target, known_topics)
            return self._target
        view = self.cluster.view()
        for _ in range(self.options.offset_retries):
            if not batch_plan.is_behind(view, start):
                break
            # A new leader may not know yet how far its predecessor came.
            time.sleep(self.options.offset_retry_interval_s)
            view = self.cluster.view()
        self.cluster.check_there(view, known_topics)
        return view

    def _is_too_early(self, new_records: int, min_offsets: int | None) -> bool:
        if min_offsets is None:
            return False
        now = time.monotonic()
        if new_records < min_offsets and now - self._last_batch_at < self.options.max_trigger_delay_s:
            return True
        self._last_batch_at = now
        return False
