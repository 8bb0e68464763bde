"""What a table remembers of its writers, beside its rows: it travels with every commit, so that no old one is needed.

Theory of operation. A *writer* is one checkpoint of one query (its query id); its batches have numbers that go up. A
batch whose number the writer has passed was committed before: it is skipped. Offsets decide between writers of one
*application*: rows that another of its writers has put into the table already are left out, which is how a thrown away
checkpoint starts over without a row twice. Offsets never decide against the same writer: a join may well send one
record out in two batches. Nor do they decide between applications, which may derive different rows from one record:
``committing`` refuses such a batch unless an option says what is meant. Queries without an application id count as one
application.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from barnabas.model.ids import TopicPartition
from barnabas.spark.tables import checksum as checksums
from barnabas.spark.tables.checksum import Checksum
from barnabas.spark.tables.intervals import Coverage, Interval, insert, merge_coverage

MAX_WRITERS = 1000
"""Whose last batch is remembered; of the others the offsets are."""

MAX_WRITERS_WITH_COVERAGE = 16
"""Whose offsets are kept apart; those of older ones are put together, by application."""

NOBODY = ""
"""Owns what was written without a batch number and without an application id."""

EXPLAINED = frozenset({"control", "aborted", "compacted", "deleted"})
"""Gaps in which there is no record that a reader could get any more."""

FORMAT = 1


class Scope(NamedTuple):
    """With whose offsets a writer's offsets are compared."""

    application: str = ""
    """Empty where the query has no application id."""
    is_apart: bool = False
    """Its rows are declared to be other rows than those of other applications (offsetScope=application)."""

    @property
    def owner(self) -> str:
        """Under which name offsets are kept that belong to no writer that is still told apart."""
        if not self.application:
            return NOBODY
        return f"{'apart' if self.is_apart else 'application'}:{self.application}"


UNNAMED = Scope()


class Gap(NamedTuple):
    """Offsets without a row. Kinds: those of EXPLAINED, ``filtered`` by the query, or ``unknown``."""

    start: int
    end: int
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """What one commit brought of one partition."""

    partition: TopicPartition
    start: int
    end: int
    rows: int
    offsets: int
    """How many different ones."""
    checksum: Checksum | None
    gaps: tuple[Gap, ...] = ()
    """At most so many as ``planning.MAX_GAPS``; ``missing`` counts all."""
    missing: dict[str, int] = field(default_factory=dict)
    """Offsets without a row, by kind."""
    topic_id: str | None = None

    @property
    def dense(self) -> bool:
        explained = sum(count for kind, count in self.missing.items() if kind in EXPLAINED)
        return self.offsets + explained == self.end - self.start

    def interval(self) -> Interval:
        return Interval(self.start, self.end, self.rows, self.dense, self.checksum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    application: str
    batch: int
    """The last one committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    writers: dict[str, Writer] = field(default_factory=dict)
    """By query id, the one that committed last at the end."""
    coverage: dict[str, Coverage] = field(default_factory=dict)
    """By owner: a query id, or the owner that a scope names."""
    scopes: dict[str, Scope] = field(default_factory=dict)
    """By owner."""
    topics: dict[str, str] = field(default_factory=dict)
    """The id of each topic, where it was known."""
    recreated: frozenset[str] = frozenset()
    """Topics of which the table also has rows that a deleted topic of the same name held."""
    commits: int = 0

    def has(self, writer: str, batch: int) -> bool:
        known = self.writers.get(writer)
        return known is not None and batch <= known.batch

    def total(self) -> Coverage:
        """What is in the table, whoever wrote it."""
        return merge_coverage(self.coverage.values())

    def of_others(self, writer: str) -> list[tuple[Scope, Coverage]]:
        return [(self.scope_of(name), coverage) for name, coverage in self.coverage.items() if name != writer]

    def scope_of(self, owner: str) -> Scope:
        return self.scopes.get(owner, UNNAMED)

    def applications(self, topic: str) -> set[str]:
        """Those that wrote rows of a topic; "" stands for queries without an application id."""
        return {
            self.scope_of(owner).application
            for owner, coverage in self.coverage.items()
            if any(partition.topic == topic for partition in coverage)
        }

    def without_topic(self, topic: str) -> TableState:
        """For a topic that was created again: its offsets begin anew, and the rows of the deleted one stay."""
        coverage = {
            owner: {partition: found for partition, found in items.items() if partition.topic != topic}
            for owner, items in self.coverage.items()
        }
        return replace(
            self,
            coverage={owner: items for owner, items in coverage.items() if items},
            topics={name: topic_id for name, topic_id in self.topics.items() if name != topic},
            recreated=self.recreated | {topic},
        )

    def ends(self) -> dict[TopicPartition, int]:
        return {partition: intervals[-1].end for partition, intervals in self.total().items() if intervals}

    def after(self, writer: str, state: Writer | None, ranges: Iterable[Range], scope: Scope = UNNAMED) -> TableState:
        """The state once a batch is in. Without a state, the writer will never come again."""
        found = list(ranges)
        writers = {name: known for name, known in self.writers.items() if name != writer}
        if state is not None:
            writers[writer] = state
        owner = scope.owner if state is None else writer
        own = dict(self.coverage.get(owner, {}))
        for item in found:
            own[item.partition] = insert(own.get(item.partition, ()), item.interval())
        coverage = {name: known for name, known in self.coverage.items() if name != owner}
        if own:
            coverage[owner] = own
        topics = {item.partition.topic: item.topic_id for item in found if item.topic_id}
        coverage, scopes = _limited(coverage, self.scopes | {owner: scope})
        return replace(
            self,
            writers=dict(list(writers.items())[-MAX_WRITERS:]),
            coverage=coverage,
            scopes=scopes,
            topics=self.topics | topics,
            commits=self.commits + 1,
        )


def _limited(coverage: dict[str, Coverage], scopes: dict[str, Scope]) -> tuple[dict[str, Coverage], dict[str, Scope]]:
    """Kept in the order of commits: the writers that were silent longest lose their name."""
    shared = {scope.owner for scope in [UNNAMED, *scopes.values()]}
    names = [name for name in coverage if name not in shared]
    merged, kept = dict(coverage), dict(scopes)
    for name in names[: max(0, len(names) - MAX_WRITERS_WITH_COVERAGE)]:
        scope = scopes.get(name, UNNAMED)
        merged = {scope.owner: merge_coverage([merged.pop(scope.owner, {}), merged.pop(name)]), **merged}
        kept[scope.owner] = scope
    return merged, {name: scope for name, scope in kept.items() if name in merged and scope.application}


def dump_state(state: TableState) -> str:
    return json.dumps(
        {
            "format": FORMAT,
            "commits": state.commits,
            "writers": {name: [item.application, item.batch] for name, item in state.writers.items()},
            "coverage": {name: _dump_coverage(item) for name, item in state.coverage.items()},
            "scopes": {name: [item.application, int(item.is_apart)] for name, item in state.scopes.items()},
            "topics": state.topics,
            "recreated": sorted(state.recreated),
        },
        separators=(",", ":"),
    )


def load_state(text: str) -> TableState:
    found = json.loads(text)
    if found.get("format") != FORMAT:
        raise ValueError(f"the table's state has format {found.get('format')}; this version of barnabas knows {FORMAT}")
    coverage = {name: _load_coverage(item) for name, item in found["coverage"].items()}
    writers = {name: Writer(application=app, batch=batch) for name, (app, batch) in found["writers"].items()}
    if "scopes" in found:
        scopes = {name: Scope(application, bool(apart)) for name, (application, apart) in found["scopes"].items()}
    else:  # written before there were scopes
        scopes = {name: Scope(item.application) for name, item in writers.items() if item.application != name}
    return TableState(
        commits=found["commits"],
        writers=writers,
        coverage=coverage,
        scopes={name: scope for name, scope in scopes.items() if name in coverage},
        topics=found["topics"],
        recreated=frozenset(found.get("recreated", ())),
    )


def _dump_coverage(coverage: Coverage) -> dict[str, dict[str, list[Any]]]:
    found: dict[str, dict[str, list[Any]]] = {}
    for (topic, partition), intervals in coverage.items():
        found.setdefault(topic, {})[str(partition)] = [
            [item.start, item.end, item.rows, int(item.dense), _text(item.checksum)] for item in intervals
        ]
    return found


def _load_coverage(found: dict[str, dict[str, list[Any]]]) -> Coverage:
    return {
        TopicPartition(topic, int(partition)): tuple(
            Interval(start, end, rows, bool(dense), checksums.parse(text)) for start, end, rows, dense, text in items
        )
        for topic, partitions in found.items()
        for partition, items in partitions.items()
    }


def dump_range(item: Range) -> dict[str, Any]:
    found: dict[str, Any] = {
        "topic": item.partition.topic,
        "partition": item.partition.partition,
        "start": item.start,
        "end": item.end,
        "rows": item.rows,
        "offsets": item.offsets,
        "checksum": _text(item.checksum),
    }
    if item.missing:
        found |= {"missing": item.missing, "gaps": [list(gap) for gap in item.gaps]}
    if item.topic_id:
        found["topicId"] = item.topic_id
    return found


def load_range(found: dict[str, Any]) -> Range:
    return Range(
        partition=TopicPartition(found["topic"], found["partition"]),
        start=found["start"],
        end=found["end"],
        rows=found["rows"],
        offsets=found["offsets"],
        checksum=checksums.parse(found["checksum"]),
        gaps=tuple(Gap(*gap) for gap in found.get("gaps", ())),
        missing=found.get("missing", {}),
        topic_id=found.get("topicId"),
    )


def _text(checksum: Checksum | None) -> str | None:
    return None if checksum is None else str(checksum)
