"""A query's progress as the offsets of a consumer group, so that every tool that shows lag shows it.

Spark keeps its progress in the checkpoint alone. Here the planning process commits what is done under a group of the
query's own, from a thread: a coordinator that is slow or away costs the query nothing but a line in the log. That a
batch is done is known when Spark asks for the next one, also at the end of an AvailableNow run, when there is none.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

from barnabas.client.wire import BrokerError, Client, ClientError
from barnabas.client.wire.groups import commit_offsets
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.spark.client_settings import connect

FLUSH_TIMEOUT_S = 5.0
"""So long the end of a run waits for its last offsets to be committed."""
ATTEMPT_TIMEOUT_MS = 5_000
PAUSE_AFTER_FAILURE_S = 30.0
"""So long after a failure nothing is waited for: a group that cannot be had must not cost every batch its time."""

_log = logging.getLogger("barnabas.spark")


class Publisher:
    """Commits the newest offsets it was given. ``publish`` and ``flush`` belong to one thread."""

    def __init__(self, kafka: Mapping[str, str], group_id: str) -> None:
        self.group_id = group_id
        self._kafka = {**kafka, "default.api.timeout.ms": str(ATTEMPT_TIMEOUT_MS)}
        self._condition = threading.Condition()
        self._waiting: dict[TopicPartition, int] | None = None
        self._given: dict[TopicPartition, int] | None = None
        self._is_busy = False
        self._is_ending = False
        self._failed_at = -PAUSE_AFTER_FAILURE_S
        self._thread: threading.Thread | None = None

    def publish(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Returns at once. What was published last is not published again."""
        if offsets == self._given or not offsets:
            return
        self._given = dict(offsets)
        with self._condition:
            self._waiting = self._given
            self._condition.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="barnabas-progress", daemon=True)
            self._thread.start()

    def flush(self, timeout_s: float = FLUSH_TIMEOUT_S) -> None:
        """Waits until all that was given is committed or has failed, within reason."""
        with self._condition:
            if time.monotonic() - self._failed_at < PAUSE_AFTER_FAILURE_S:
                return
            self._condition.wait_for(lambda: self._waiting is None and not self._is_busy, timeout_s)

    def close(self) -> None:
        """What was given is committed first, within reason."""
        self.flush()
        with self._condition:
            self._is_ending = True
            self._condition.notify_all()

    def _run(self) -> None:
        with connect(self._kafka) as client:
            while (offsets := self._next()) is not None:
                self._commit(client, offsets)

    def _next(self) -> dict[TopicPartition, int] | None:
        """What is to be committed, waited for; None at the end."""
        with self._condition:
            self._is_busy = False
            self._condition.notify_all()
            self._condition.wait_for(lambda: self._waiting is not None or self._is_ending)
            offsets, self._waiting = self._waiting, None
            self._is_busy = offsets is not None
            return offsets

    def _commit(self, client: Client, offsets: Mapping[TopicPartition, int]) -> None:
        try:
            commit_offsets(client, self.group_id, offsets)
        except (BrokerError, ClientError) as error:
            if isinstance(error, BrokerError) and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return  # a partition that is gone has no progress; that of the others is committed all the same
            with self._condition:
                self._failed_at = time.monotonic()
            _log.warning("the progress of the query was not published as group %s: %s", self.group_id, error)
