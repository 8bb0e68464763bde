"""Running a server: a start that waits can be ended."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest

from barnabas.app import assembly, run


class Waiting:
    """A server whose start waits for something that does not come."""

    def __init__(self) -> None:
        self.is_cancelled = False

    async def start(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.is_cancelled = True
            raise


def test_a_signal_ends_a_start_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    server, endings = Waiting(), []
    monkeypatch.setattr(assembly, "assemble", lambda *_, **__: server)
    monkeypatch.setattr(run, "START_GRACE_S", 0.01)
    given = [("listeners", "PLAINTEXT://127.0.0.1:0")]

    def started(_server: Any) -> None:
        raise AssertionError("it has not started")

    clean = run.run(config=None, given=given, memory=True, on_started=started, on_ending=endings.append)
    assert (clean, endings, server.is_cancelled) == (False, [None], True)
