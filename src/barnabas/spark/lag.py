"""How far a query is behind its topics, from the progress that Spark reports.

Spark's own Kafka source reports the metrics ``minOffsetsBehindLatest``, ``maxOffsetsBehindLatest`` and
``avgOffsetsBehindLatest``. Spark takes no metrics from sources in Python, but it reports the offsets that a batch
reached and the latest ones, and the metrics follow from those.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def offsets_behind_latest(source: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of one source in a query's progress: of ``query.lastProgress["sources"]``, or of a listener's event.

    They are over partitions. Empty where Spark reports no offsets, or not those of this source.
    """
    found = by_partition(_text(source["endOffset"]), _text(source["latestOffset"]))
    if not found:
        return {}
    counts = list(found.values())
    return {
        "minOffsetsBehindLatest": min(counts),
        "maxOffsetsBehindLatest": max(counts),
        "avgOffsetsBehindLatest": sum(counts) / len(counts),
    }


def lag_of(source: Mapping[str, Any]) -> int | None:
    """The records between where a source is and the latest ones; None where that is not known."""
    found = by_partition(_text(source["endOffset"]), _text(source["latestOffset"]))
    return None if found is None else sum(found.values())


def by_partition(end: str | None, latest: str | None) -> dict[tuple[str, int], int] | None:
    """The same by topic and partition, from two offsets of our source as JSON; None where they are not of that form."""
    try:
        reached, there = json.loads(end or ""), json.loads(latest or "")
        return {
            (topic, int(partition)): max(0, int(offset) - int(reached.get(topic, {}).get(partition, 0)))
            for topic, partitions in there.items()
            if topic != "~"
            for partition, offset in partitions.items()
        }
    except (ValueError, AttributeError, TypeError):
        return None


def _text(offset: object) -> str | None:
    """An offset as its JSON: Spark gives it as text, or taken apart."""
    return offset if isinstance(offset, str) or offset is None else json.dumps(offset)
