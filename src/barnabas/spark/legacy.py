"""Streams on Spark 4.0 and 4.1, which asks for the latest offset without saying where the batch starts.

So there are no rate limits, a run up to what is available now is one batch, the group of a query is named after its
options, and what was lost is found out when the batch is planned. The end of the last batch before a stop is published
by the next run.
"""
# ruff: noqa: N802 -- the names of the methods are Spark's

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from pyspark.sql.datasource import InputPartition

from barnabas.client.wire.data import OffsetRange
from barnabas.spark import batch_plan
from barnabas.spark.batch_plan import Position, View, from_json, to_json
from barnabas.spark.source import BaseStreamReader, report_losses


class LegacyStreamReader(BaseStreamReader):
    _last: dict[str, Any] | None = None
    _has_planned = False

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        view = self.cluster.view()
        is_first = self._initial is not None and not self._has_planned
        begins = self._initial.offsets if self._initial is not None and is_first else {}
        end = Position(
            offsets=view.latest,
            topic_ids={topic: topic_id for topic, topic_id in view.topic_ids.items() if topic_id},
            begins={partition: begin for partition, begin in begins.items() if partition in view.latest},
            query=self.new_query(),
        )
        if self._last is not None and from_json(self._last).offsets == end.offsets:
            return self._last
        if self._initial is not None and self._initial.offsets == end.offsets and is_first:
            return to_json(self._initial)
        return to_json(end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._last, self._has_planned = end, True
        first, last = from_json(start), from_json(end)
        if last.begins:
            return self.tasks(batch_plan.ranges(first, last, {}))
        self.publish(first)
        now = self.cluster.view()
        earliest = {partition: now.earliest.get(partition, 0) for partition in last.offsets}
        found = batch_plan.advance(first, View(last.topic_ids, earliest, last.offsets))
        report_losses(found.losses, self.options)
        return self.tasks(
            [
                OffsetRange(partition, begin, last.offsets[partition], last.topic_ids.get(partition.topic, ""))
                for partition, begin in found.begins.items()
            ]
        )

    def new_query(self) -> str:
        """The same at every start, and where another query has the same options, the same for both."""
        text = f"{self.options.kafka['bootstrap.servers']} {self.options.subscription}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]
