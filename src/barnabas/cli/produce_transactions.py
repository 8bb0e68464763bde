"""Transactions of ``barnabas produce --transactional-id``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import click

from barnabas.cli.output import counted
from barnabas.cli.transactional_producer import TransactionalProducer

L = TypeVar("L")


class Transactions:
    """All lines in one transaction, or so many in each."""

    def __init__(self, producer: TransactionalProducer, messages_each: int | None) -> None:
        self._producer = producer
        self._each = messages_each
        self._is_open = False
        self._open_count = 0
        self.committed = 0
        self.committed_messages = 0
        self.aborted_messages = 0

    def grouped(self, lines: Iterable[L]) -> Iterator[L]:
        """Begins and commits transactions between the lines; the last one is left to ``commit``."""
        for line in lines:
            if not self._is_open:
                self._producer.begin()
                self._is_open = True
            yield line
            self._open_count += 1
            if self._open_count == self._each:
                self.commit()
                self._producer.raise_interrupt()

    def commit(self) -> None:
        if not self._is_open:
            return
        self._producer.commit()
        self.committed += 1
        self.committed_messages += self._open_count
        self._end()

    def abort(self) -> str:
        """Aborts what is open. Returns a sentence on what became of the messages."""
        if not self._is_open:
            return self._before()
        self.aborted_messages = self._open_count
        try:
            self._producer.abort()
            outcome = f"The open transaction was aborted, with {counted(self._open_count, 'message')}"
        except Exception as error:
            outcome = f"The open transaction could not be aborted ({reason_of(error)}), and ends with its timeout"
        self._end()
        return f"{outcome}. {self._before()}"

    def _before(self) -> str:
        if not self.committed:
            return "Nothing was committed."
        transactions = counted(self.committed, "transaction")
        return f"{counted(self.committed_messages, 'message')} in {transactions} had been committed before."

    def _end(self) -> None:
        self._is_open = False
        self._open_count = 0

    def as_json(self) -> dict[str, Any]:
        return {"transactions": self.committed, "committed": self.committed_messages, "aborted": self.aborted_messages}

    def summary(self) -> str:
        return f", in {counted(self.committed, 'transaction')}"


def check_options(options: dict[str, Any]) -> None:
    if options["transactional_id"] is None:
        given = [name for name in ("transaction_messages", "transaction_timeout") if options[name] is not None]
        if given:
            raise click.UsageError(f"--{given[0].replace('_', '-')} goes with --transactional-id.")
    elif options["acks"] != "all":
        raise click.UsageError(f"--acks is {options['acks']}: --transactional-id needs all.")


def reason_of(error: Exception) -> str:
    inner = error.args[0] if error.args else error
    return inner.str() if hasattr(inner, "str") else str(inner)
