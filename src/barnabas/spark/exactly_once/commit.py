"""What the driver does when every task has written its rows.

1. It takes a new epoch of the application's driver id. From here on no other driver can decide anything.
2. It reads the last decision. If that is about this batch, an earlier driver made it: it is carried out, and what the
   tasks have written this time is aborted. A driver that died before it decided has left no trace but open
   transactions.
3. It looks whether all transactions are still open: brokers abort those that time out.
4. It stores its decision, which names the transactions. This is the moment at which the batch counts.
5. It commits them, one after the other. Done again, this changes nothing.
6. It aborts what attempts that were lost have left open.

A transaction that is aborted between 4 and 5 (its driver was dead for longer than the time-out) is replaced by that of
a repeated task with the same rows. Where there is none, the batch fails, and says so.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from barnabas.client.wire.client import Client
from barnabas.client.wire.errors import BrokerError, ClientError
from barnabas.client.wire.transactional import TransactionalProducer, end_transaction, init_producer
from barnabas.client.wire.transactions import ONGOING, TransactionFilter, find_transaction, list_transactions
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.spark.exactly_once.decision import Decision, SourceOffsets, read_decision, write_decision
from barnabas.spark.exactly_once.names import (
    ExactlyOnceError,
    Origin,
    TaskTransaction,
    driver_id,
    group_id,
    task_name,
    transactional_id,
)
from barnabas.spark.exactly_once.task import TaskResult

DRIVER_TIMEOUT_MS = 60_000
"""Of the driver's own transaction, which takes milliseconds."""
VISIBLE_TIMEOUT_S = 10.0
"""So long the end of a batch write waits until readers see it."""

ABORTED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE})
"""What a commit is answered where the transaction has been aborted before."""

_log = logging.getLogger("barnabas.spark")


class Outcome(NamedTuple):
    status: str
    """committed, repeated (it had been decided before) or empty."""
    rows: int


def _nothing(_step: str) -> None:
    pass


class Committer:
    """For one application. ``reached`` is called between steps: tests let a driver die there."""

    def __init__(self, client: Client, application: str, *, reached: Callable[[str], None] = _nothing) -> None:
        self._client = client
        self._application = application
        self._reached = reached

    def commit(self, origin: Origin, results: Sequence[TaskResult]) -> Outcome:
        """Raises ExactlyOnceError, BrokerError or ClientError; it may have been done all the same."""
        if origin.batch is None:
            return self._commit_unnamed(results)
        driver, decided = self._take_over()
        self._reached("taken over")
        if decided is not None and decided.is_of(origin.query, origin.batch):
            decided = self._complete(driver, decided, results)
            outcome = Outcome("repeated", sum(task.rows for task in decided.tasks))
        else:
            outcome = self._commit_new(driver, decided, origin, results)
        self.abort_leftovers()
        return outcome

    def recover(self) -> Decision | None:
        """Carries the last decision out, whoever made it. Raises ExactlyOnceError."""
        driver, decided = self._take_over()
        if decided is not None:
            decided = self._complete(driver, decided, [])
        self.abort_leftovers()
        return decided

    def abort(self, results: Iterable[TaskResult]) -> None:
        """Only where no commit has been tried: one that failed may have decided."""
        for task in _transactions(results):
            self._abort(task)

    def abort_leftovers(self) -> None:
        """What is still open: the transactions of attempts that were killed, and of drivers before this one."""
        try:
            for found in list_transactions(self._client, TransactionFilter(states=[ONGOING])):
                if task_name(self._application, found.transactional_id) is not None:
                    init_producer(self._client, found.transactional_id, DRIVER_TIMEOUT_MS)
        except (BrokerError, ClientError) as error:
            _log.warning("open transactions of %s are left to time out: %s", group_id(self._application), error)

    def _take_over(self) -> tuple[TransactionalProducer, Decision | None]:
        driver = init_producer(self._client, driver_id(self._application), DRIVER_TIMEOUT_MS)
        return driver, read_decision(self._client, self._application)

    def _commit_new(
        self, driver: TransactionalProducer, decided: Decision | None, origin: Origin, results: Sequence[TaskResult]
    ) -> Outcome:
        assert origin.batch is not None
        self._check_order(decided, origin, results)
        if decided is not None and decided.query != origin.query:
            self._complete(driver, decided, [])
        tasks = tuple(_transactions(results))
        if not tasks:
            return Outcome("empty", 0)
        self._check_open(tasks)
        decision = Decision(
            sequence=decided.sequence + 1 if decided is not None else 1,
            query=origin.query,
            batch=origin.batch,
            tasks=tasks,
            offsets=_merged([decided.offsets if decided is not None else {}, *(each.offsets for each in results)]),
            inherited=decided.offsets_before(origin.query) if decided is not None else {},
        )
        topic = min(topic for result in results for topic in result.topics)
        self._decide(driver, topic, decision)
        self._complete(driver, decision, results)
        return Outcome("committed", sum(task.rows for task in tasks))

    def _check_order(self, decided: Decision | None, origin: Origin, results: Iterable[TaskResult]) -> None:
        assert origin.batch is not None
        if any(each.seen not in (None, decided.sequence if decided is not None else 0) for each in results):
            raise ExactlyOnceError(
                f"application {self._application} was written by another query while this batch ran: start it again"
            )
        if decided is None:
            return
        if decided.query == origin.query and decided.batch > origin.batch:
            raise ExactlyOnceError(
                f"batch {origin.batch} of {self._application} comes after batch {decided.batch}, which is in the "
                "topic: the checkpoint is older than that. Its batches may hold other rows, so none is written"
            )
        if decided.query != origin.query and any(each.seen is None for each in results if each.transaction):
            raise ExactlyOnceError(
                f"application {self._application} was last written by query {decided.query or '(none)'} up to batch "
                f"{decided.batch}, and this is query {origin.query or '(none)'}: with another checkpoint batches hold "
                "other rows. Set the option sourceColumn, so that rows are known by their offsets, or another "
                "applicationId, which takes all rows as new"
            )

    def _check_open(self, tasks: Iterable[TaskTransaction]) -> None:
        for task in tasks:
            name = transactional_id(self._application, task.name)
            found = find_transaction(self._client, name)
            if found is None or found.producer != task.producer(self._application) or found.state != ONGOING:
                state = found.state if found is not None else "unknown"
                raise ExactlyOnceError(
                    f"transaction {name} of a task is not open any more ({state}): nothing was committed. If the batch "
                    "took longer than kafka.transaction.timeout.ms, raise that, and the broker's "
                    "transaction.max.timeout.ms"
                )

    def _decide(self, driver: TransactionalProducer, topic: str, decision: Decision) -> None:
        write_decision(self._client, driver, self._application, topic, decision)
        self._reached("decision written")
        end_transaction(self._client, driver, commit=True)
        self._reached("decided")

    def _complete(self, driver: TransactionalProducer, decided: Decision, results: Sequence[TaskResult]) -> Decision:
        """Commits what was decided, and aborts what the tasks have written besides."""
        lost = [task for task in decided.tasks if not self._is_committed(task)]
        if lost:
            decided = self._repaired(driver, decided, lost, results)
        for task in _transactions(results):
            if task not in decided.tasks:
                self._abort(task)
        self._reached("completed")
        return decided

    def _is_committed(self, task: TaskTransaction) -> bool:
        try:
            end_transaction(self._client, task.producer(self._application), commit=True)
        except BrokerError as error:
            if error.code in ABORTED:
                return False
            if error.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
                raise ExactlyOnceError(
                    f"what became of transaction {task.name} of {self._application} is not known: brokers forget ids "
                    "that are not used (transactional.id.expiration.ms). If its rows are in, delete group "
                    f"{group_id(self._application)}"
                ) from error
            raise
        self._reached("task committed")
        return True

    def _repaired(
        self,
        driver: TransactionalProducer,
        decided: Decision,
        lost: Sequence[TaskTransaction],
        results: Sequence[TaskResult],
    ) -> Decision:
        spare = [task for task in _transactions(results) if task not in decided.tasks]
        replaced: dict[TaskTransaction, TaskTransaction] = {}
        for task in lost:
            same = next((other for other in spare if other.has_same_rows(task)), None)
            if same is None:
                raise self._incomplete(decided, lost)
            spare.remove(same)
            replaced[task] = same
        self._check_open(replaced.values())
        tasks = tuple(replaced.get(task, task) for task in decided.tasks)
        decision = replace(decided, sequence=decided.sequence + 1, tasks=tasks)
        self._decide(driver, min(topic for result in results for topic in result.topics), decision)
        _log.warning("%d transactions of batch %d had timed out: rows written anew", len(lost), decided.batch)
        return self._complete(driver, decision, [])

    def _incomplete(self, decided: Decision, lost: Sequence[TaskTransaction]) -> ExactlyOnceError:
        rows = sum(task.rows for task in lost)
        return ExactlyOnceError(
            f"{len(lost)} of {len(decided.tasks)} transactions of batch {decided.batch} of {self._application}, with "
            f"{rows} rows, were aborted after the batch was decided: the driver was away for longer than "
            "kafka.transaction.timeout.ms. The rows cannot be told from those that are in, because the repeated "
            f"batch has others. To write the batch again, with {sum(task.rows for task in decided.tasks) - rows} rows "
            f"twice, delete group {group_id(self._application)}"
        )

    def _abort(self, task: TaskTransaction) -> None:
        try:
            end_transaction(self._client, task.producer(self._application), commit=False)
        except BrokerError as error:
            if error.code not in ABORTED:
                raise

    def _commit_unnamed(self, results: Sequence[TaskResult]) -> Outcome:
        """A batch write that nobody repeats: no decision would ever be read."""
        tasks = list(_transactions(results))
        self._check_open(tasks)
        for number, task in enumerate(tasks):
            if not self._is_committed(task):
                raise ExactlyOnceError(
                    f"a transaction was aborted while the write was committed: {number} of {len(tasks)} are committed"
                )
        self.abort_leftovers()
        self._wait_until_visible(tasks)
        return Outcome("committed", sum(task.rows for task in tasks))

    def _wait_until_visible(self, tasks: Sequence[TaskTransaction]) -> None:
        names = {transactional_id(self._application, task.name) for task in tasks}
        deadline_s = time.monotonic() + VISIBLE_TIMEOUT_S
        try:
            while names and time.monotonic() < deadline_s:
                found = [find_transaction(self._client, name) for name in names]
                names = {each.producer.transactional_id for each in found if each and each.state.startswith("Prepare")}
                time.sleep(0.01 if names else 0)
        except (BrokerError, ClientError) as error:
            _log.warning("the rows are committed; whether readers see them yet is not known: %s", error)


def _transactions(results: Iterable[TaskResult]) -> Iterable[TaskTransaction]:
    return (result.transaction for result in results if result.transaction is not None)


def _merged(parts: Iterable[SourceOffsets]) -> SourceOffsets:
    found: dict[TopicPartition, int] = {}
    for part in parts:
        for place, offset in part.items():
            found[place] = max(offset, found.get(place, 0))
    return found
