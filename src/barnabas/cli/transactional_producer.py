"""A librdkafka producer with a transactional id, whose calls Ctrl-C does not break off in the middle."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import click

from barnabas.cli.interrupts import Interrupt

ATTEMPT_S = 0.5
"""librdkafka's calls for transactions can be repeated until they have an answer."""
MIN_TRANSACTION_TIMEOUT_MS = 1000
"""librdkafka's."""


class TransactionalProducer:
    """Methods raise KafkaException; one whose error says so (``requires_abort``) leaves only ``abort``."""

    def __init__(
        self, settings: dict[str, Any], transactional_id: str, *, timeout_s: float, transaction_s: float
    ) -> None:
        from confluent_kafka import Producer  # noqa: PLC0415 - slow to import

        self._transaction_s = transaction_s
        transaction_ms = max(int(transaction_s * 1000), MIN_TRANSACTION_TIMEOUT_MS)
        self._timeout_s = timeout_s
        self.interrupted = False
        """Ctrl-C came during a call that was finished all the same."""
        self.inner: Any = Producer(
            {
                **settings,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": transaction_ms,
                "message.timeout.ms": min(int(timeout_s * 1000), transaction_ms),
                "log_level": 0,
            },
            logger=_no_logger(),  # fatal errors are printed at every log level, and raised as well
        )

    def init(self) -> None:
        """Fences an earlier producer with this transactional id, and aborts what it left open."""
        from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415 - slow to import

        try:
            self._call(self.inner.init_transactions)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.INVALID_TRANSACTION_TIMEOUT:
                raise
            text = f"--transaction-timeout is {self._transaction_s:g} s, above the broker's transaction.max.timeout.ms."
            raise click.ClickException(text) from error
        self.raise_interrupt()

    def begin(self) -> None:
        self.inner.begin_transaction()

    def send_offsets(self, offsets: list[Any], group: Any) -> None:
        self._call(lambda seconds: self.inner.send_offsets_to_transaction(offsets, group, seconds))

    def commit(self) -> None:
        """Waits for the messages to be delivered, too."""
        self._call(self.inner.commit_transaction)

    def abort(self) -> None:
        self._call(self.inner.abort_transaction)

    def raise_interrupt(self) -> None:
        if self.interrupted:
            self.interrupted = False
            raise KeyboardInterrupt

    def _call(self, attempt: Callable[[float], None]) -> None:
        from confluent_kafka import KafkaException  # noqa: PLC0415 - slow to import

        deadline = time.monotonic() + self._timeout_s
        with Interrupt() as interrupt:
            while True:
                try:
                    attempt(ATTEMPT_S)
                    break
                except KafkaException as error:
                    if not error.args[0].retriable() or interrupt.has_passed(deadline):
                        raise
                    self.inner.poll(0.05)
        self.interrupted = self.interrupted or interrupt.seen


def requires_abort(error: Exception) -> bool:
    inner = error.args[0] if error.args else None
    return bool(inner is not None and hasattr(inner, "txn_requires_abort") and inner.txn_requires_abort())


def _no_logger() -> logging.Logger:
    logger = logging.getLogger("barnabas.cli.librdkafka")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger
