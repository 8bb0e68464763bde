"""Ctrl-C in commands that use Spark.

PySpark's own handler talks to Java on a connection that the main thread is waiting on, which fails with a stack of
errors and leaves the query running. Here the first SIGINT is noted, and Spark's jobs are cancelled from another thread,
on a connection of its own. A second SIGINT ends the command where it is.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, Self

import click

CANCEL_EVERY_S = 0.1
INTERRUPTED = 130
"""The exit code, as shells have it for SIGINT."""


class Stopped(click.exceptions.Exit):
    """The user stopped the command before it was done."""

    def __init__(self) -> None:
        super().__init__(INTERRUPTED)


class Stopping:
    """Whether the user has asked for an end. A context manager, for the main thread; elsewhere it does nothing."""

    def __init__(self) -> None:
        self.is_asked = False
        self._cancel: Callable[[], object] | None = None
        self._before: Any = None
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        self._before = signal.getsignal(signal.SIGINT)
        self.take_over()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if _is_main_thread():
            signal.signal(signal.SIGINT, self._before)

    def take_over(self, cancel: Callable[[], object] | None = None) -> None:
        """Also after Spark has started, which puts its own handler in place. ``cancel`` ends what Spark is doing."""
        self._cancel = cancel
        if _is_main_thread():
            signal.signal(signal.SIGINT, self._on_interrupt)
        if self.is_asked:
            raise Stopped

    def _on_interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_asked:
            raise KeyboardInterrupt
        self.is_asked = True
        click.echo("stopping", err=True)
        if self._cancel is not None:
            threading.Thread(target=self._keep_cancelling, args=(self._cancel,), daemon=True).start()

    def _keep_cancelling(self, cancel: Callable[[], object]) -> None:
        """A job may begin right after all others were cancelled."""
        with suppress(Exception):  # the session is gone
            while not self._ended.wait(CANCEL_EVERY_S):
                cancel()


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
