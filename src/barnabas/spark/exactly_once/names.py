"""What an application calls its group, its driver and its transactions, and what a task tells of its transaction."""

from __future__ import annotations

import os
import re
import secrets
from typing import NamedTuple

from barnabas.client.wire.transactional import TransactionalProducer

PREFIX = "barnabas-sink"
_TOKEN_BYTES = 8


class ExactlyOnceError(Exception):
    """The batch cannot be written, or cannot be said to be there once. The text says what can be done."""


class Origin(NamedTuple):
    """Whose rows these are."""

    application: str
    """Names the group and the transactions: the option applicationId, or the query's id, or that of one batch write."""
    query: str
    """The id in the checkpoint; empty for a batch write."""
    batch: int | None
    """None for a batch write that nobody can repeat."""


class TaskTransaction(NamedTuple):
    """A transaction that is written and not ended."""

    name: str
    """What follows the application in its transactional id."""
    producer_id: int
    producer_epoch: int
    rows: int
    checksum: int

    def producer(self, application: str) -> TransactionalProducer:
        return TransactionalProducer(transactional_id(application, self.name), self.producer_id, self.producer_epoch)

    def has_same_rows(self, other: TaskTransaction) -> bool:
        return (self.rows, self.checksum) == (other.rows, other.checksum)


def group_id(application: str, chunk: int = 0) -> str:
    """Of the decision, which takes several groups where it is long."""
    return f"{PREFIX}-{application}" + (f".{chunk}" if chunk else "")


def driver_id(application: str) -> str:
    return f"{PREFIX}-{application}-driver"


def transactional_id(application: str, name: str) -> str:
    return f"{PREFIX}-{application}-{name}"


def task_name(application: str, found: str) -> str | None:
    """The name of a task's transaction of this application, by its transactional id; None for any other id."""
    match = re.fullmatch(rf"{PREFIX}-{re.escape(application)}-([0-9a-f]{{{2 * _TOKEN_BYTES}}}-\d+)", found)
    return match[1] if match else None


class _Slots:
    """The names of one process. No other process uses them, so no attempt that lives on elsewhere disturbs one.

    A name is free again when a later batch than its own is decided. Until then a driver may have to ask what became of
    it. So a stream has twice as many transactional ids as tasks, not one for each task of each batch.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        self._token = secrets.token_hex(_TOKEN_BYTES)
        self._count = 0
        self._used: dict[tuple[str, str], dict[str, int]] = {}

    def take(self, origin: Origin, last_decided: int) -> str:
        if origin.batch is None:
            return self._new()
        used = self._used.setdefault((origin.application, origin.query), {})
        limit = min(origin.batch, last_decided)
        name = next((name for name, batch in used.items() if batch < limit), None) or self._new()
        used[name] = origin.batch
        return name

    def _new(self) -> str:
        self._count += 1
        return f"{self._token}-{self._count}"


_slots = _Slots()


def free_name(origin: Origin, last_decided: int) -> str:
    """For a transaction of this process. ``last_decided`` is the last batch of this query that is decided."""
    global _slots  # noqa: PLW0603 -- Spark forks its workers: names of the parent are not the child's
    if _slots.process != os.getpid():
        _slots = _Slots()
    return _slots.take(origin, last_decided)
