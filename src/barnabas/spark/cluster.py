"""What the driver asks a cluster: which partitions there are, where their logs begin and end, what was when.

A broker that is away is waited for. Only who was never reached gets short patience: that is probably a wrong address.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Container, Mapping
from typing import TypeVar

from barnabas.client.wire import BrokerError, BrokerUnavailable, Client, TopicInfo
from barnabas.client.wire.admin import list_offsets
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import ZERO_UUID, TopicPartition, uuid_text
from barnabas.spark.batch_plan import View
from barnabas.spark.client_settings import connect, is_read_committed
from barnabas.spark.options import (
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTimestamps,
    Bound,
    Everywhere,
    SourceOptions,
    SparkOptionError,
)

FIRST_CONTACT_S = 10.0
"""So long is waited for brokers that were never reached."""
BACKOFF_S = 0.5

GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})

T = TypeVar("T")

_log = logging.getLogger("barnabas.spark")


class Cluster:
    """Connects on its first question. One thread."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._client: Client | None = None
        self._was_reached = False

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None

    def view(self) -> View:
        """What is not there is left out: see ``check_there``."""
        for _ in range(self._options.offset_retries):
            try:
                return self._patiently(self._view)
            except BrokerError as error:
                if error.code not in GONE:
                    raise
                # A topic that was deleted between two questions is seen as such by the next round.
                time.sleep(self._options.offset_retry_interval_s)
        return self._patiently(self._view)

    def check_there(self, view: View, known_topics: Container[str] = ()) -> None:
        """Raises BrokerError for what the options name and the view has not, unless it was there once."""
        wanted = self._options.subscription
        for name in (*wanted.topics, *(partition.topic for partition in wanted.partitions)):
            if name not in view.topic_ids and name not in known_topics:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}", "there is no such topic")
        for partition in wanted.partitions:
            if partition not in view.latest and partition.topic not in known_topics:
                reason = f"assign names it, but topic {partition.topic} has no such partition"
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(partition), reason)

    def offsets_at(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first offset at or after each time, -1 where no record is that young."""
        read_committed = is_read_committed(self._options.kafka)
        found = self._patiently(lambda client: list_offsets(client, timestamps, read_committed=read_committed))
        return {partition: listed.offset for partition, listed in found.items()}

    def resolve(self, bound: Bound, view: View, *, is_start: bool) -> dict[TopicPartition, int]:
        """The offset that a bound means in every partition. Raises SparkOptionError."""
        if isinstance(bound, Everywhere):
            return dict(view.earliest if bound.place == EARLIEST else view.latest)
        if isinstance(bound, AtOffsets):
            _check_named(bound.option, bound.offsets, view)
            return {partition: _place(view, partition, offset) for partition, offset in bound.offsets.items()}
        return self._resolve_times(bound, view, is_start)

    def _resolve_times(self, bound: AtTimestamps, view: View, is_start: bool) -> dict[TopicPartition, int]:
        wanted = bound.timestamps
        if isinstance(wanted, int):
            wanted = dict.fromkeys(view.latest, wanted)
        _check_named(bound.option, wanted, view)
        found: dict[TopicPartition, int] = {}
        for partition, offset in self.offsets_at(wanted).items():
            if offset < 0 and is_start and not self._options.latest_where_no_match:
                raise SparkOptionError(
                    f"{bound.option}: {partition} has no record at or after {wanted[partition]}; "
                    "set startingOffsetsByTimestampStrategy to latest to start at its end"
                )
            found[partition] = offset if offset >= 0 else view.latest[partition]
        return found

    def _view(self, client: Client) -> View:
        topics = self._topics(client)
        partitions = [TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions]
        if assigned := self._options.subscription.partitions:
            partitions = [partition for partition in partitions if partition in assigned]
        read_committed = is_read_committed(self._options.kafka)
        earliest = list_offsets(client, dict.fromkeys(partitions, EARLIEST))
        latest = list_offsets(client, dict.fromkeys(partitions, LATEST), read_committed=read_committed)
        return View(
            {name: "" if topic.topic_id == ZERO_UUID else uuid_text(topic.topic_id) for name, topic in topics.items()},
            {partition: listed.offset for partition, listed in earliest.items()},
            {partition: max(listed.offset, earliest[partition].offset) for partition, listed in latest.items()},
        )

    def _topics(self, client: Client) -> dict[str, TopicInfo]:
        wanted = self._options.subscription
        if wanted.pattern is not None:
            pattern = re.compile(wanted.pattern)
            found = {name: topic for name, topic in client.load(None).items() if pattern.search(name)}
            return {name: topic for name, topic in found.items() if not topic.is_internal and not topic.code}
        topics = client.load(wanted.topics or sorted({partition.topic for partition in wanted.partitions}))
        for name, topic in topics.items():
            if topic.code and topic.code not in GONE:
                raise BrokerError(topic.code, f"topic {name}")
        return {name: topic for name, topic in topics.items() if not topic.code}

    def _patiently(self, ask: Callable[[Client], T]) -> T:
        started = time.monotonic()
        while True:
            if self._client is None:
                self._client = connect(self._options.kafka)
            try:
                answer = ask(self._client)
            except BrokerUnavailable as error:
                patience_s = self._options.poll_timeout_s if self._was_reached else FIRST_CONTACT_S
                if time.monotonic() - started + BACKOFF_S > patience_s:
                    raise
                _log.warning("waiting for a broker: %s", error)
                self.close()
                time.sleep(BACKOFF_S)
                continue
            self._was_reached = True
            return answer


def _check_named(option: str, named: Mapping[TopicPartition, object], view: View) -> None:
    missing, unknown = view.latest.keys() - named.keys(), named.keys() - view.latest.keys()
    if missing:
        listed = ", ".join(map(str, sorted(missing)))
        raise SparkOptionError(f"{option} must name all partitions that are read, and {listed} is missing")
    if unknown:
        listed = ", ".join(map(str, sorted(unknown)))
        raise SparkOptionError(f"{option} names {listed}, which is not among the partitions that are read")


def _place(view: View, partition: TopicPartition, offset: int) -> int:
    if offset == LATEST:
        return view.latest[partition]
    return view.earliest[partition] if offset == EARLIEST else offset
