"""How ``barnabas consume --group`` commits what it has printed: from time to time, or in transactions."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from barnabas.cli.interrupts import Deferred
from barnabas.cli.transactional_producer import TransactionalProducer, requires_abort

COMMIT_EVERY_S = 1.0
TIMEOUT_S = 30.0
TRANSACTION_TIMEOUT_S = 60.0


class Commits(Protocol):
    def commit_after(self, messages: list[Any], write: Callable[[], None]) -> bool:
        """Writes messages, and commits their offsets then or later. False: nothing was written, read them again."""

    def commit(self) -> None:
        """Now, what is still to be committed."""


class PlainCommits:
    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._uncommitted = False
        self._commit_at = time.monotonic() + COMMIT_EVERY_S

    def commit_after(self, messages: list[Any], write: Callable[[], None]) -> bool:
        if messages:
            write()
            self._uncommitted = True
        if time.monotonic() >= self._commit_at:
            self.commit()
        return True

    def commit(self) -> None:
        self._commit_at = time.monotonic() + COMMIT_EVERY_S
        if self._uncommitted:
            self._uncommitted = False
            self._reader.commit(asynchronous=False)


class TransactionalCommits:
    """A transaction for each round of messages.

    All that a broker may refuse comes before the output: a member that has lost its partitions writes nothing. What is
    written and not committed, because of a crash in between, is read again by the next one.
    """

    def __init__(self, reader: Any, servers: str, transactional_id: str) -> None:
        self._reader = reader
        settings = {"bootstrap.servers": servers, "client.id": "barnabas-consume"}
        self._producer = TransactionalProducer(
            settings, transactional_id, timeout_s=TIMEOUT_S, transaction_s=TRANSACTION_TIMEOUT_S
        )
        self._producer.init()

    def commit_after(self, messages: list[Any], write: Callable[[], None]) -> bool:
        if not messages:
            return True
        with Deferred():
            is_committed = self._transaction(messages, write)
        self._producer.raise_interrupt()
        return is_committed

    def commit(self) -> None:
        """Nothing is left between two rounds."""

    def _transaction(self, messages: list[Any], write: Callable[[], None]) -> bool:
        if not self._add_offsets(messages):
            self._read_again(messages)
            return False
        try:
            write()
        except BaseException:
            self._producer.abort()
            raise
        self._producer.commit()
        return True

    def _add_offsets(self, messages: list[Any]) -> bool:
        """False where the group has moved on without this member."""
        from confluent_kafka import KafkaException, TopicPartition  # noqa: PLC0415 - slow to import

        ends = {(message.topic(), message.partition()): message.offset() + 1 for message in messages}
        offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in ends.items()]
        self._producer.begin()
        try:
            self._producer.send_offsets(offsets, self._reader.consumer_group_metadata())
        except KafkaException as error:
            if not requires_abort(error):
                raise
            self._producer.abort()
            return False
        return True

    def _read_again(self, messages: list[Any]) -> None:
        from confluent_kafka import KafkaException, TopicPartition  # noqa: PLC0415 - slow to import

        starts: dict[tuple[str, int], int] = {}
        for message in messages:
            starts.setdefault((message.topic(), message.partition()), message.offset())
        for (topic, partition), offset in starts.items():
            with suppress(KafkaException):  # another member reads it now
                self._reader.seek(TopicPartition(topic, partition, offset))
