"""A report never raises: the code that handles the problem comes after it."""

from __future__ import annotations

import builtins
import errno
import io
import json
import logging
import sys
from typing import Any

import pytest

from barnabas.app.logs import Report, silent


@pytest.fixture
def no_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has run out of descriptors."""
    real = builtins.__import__

    def fail(name: str, *rest: Any, **named: Any) -> Any:
        if name in ("structlog", "logging"):
            raise OSError(errno.EMFILE, "Too many open files", name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", fail)


def test_a_report_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    Report()("something happened", where="here")
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["where"], line["level"]) == ("something happened", "here", "warning")


@pytest.mark.usefixtures("no_imports")
def test_without_descriptors_it_is_a_plain_line(capsys: pytest.CaptureFixture[str]) -> None:
    Report()("something happened", where="here", exc_info=ValueError("why"))
    written = capsys.readouterr().err
    assert written.startswith("barnabas: something happened where='here' exc_info=ValueError('why')")
    assert written.count("\n") == 1


@pytest.mark.usefixtures("no_imports")
def test_silent_says_it_plainly_too(capsys: pytest.CaptureFixture[str]) -> None:
    silent("something happened", where="here")
    assert "something happened" in capsys.readouterr().err


def test_what_is_loaded_in_time_needs_no_import(
    capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    report = Report()
    report.load()
    request.getfixturevalue("no_imports")
    report("something happened")
    assert json.loads(capsys.readouterr().err)["event"] == "something happened"


@pytest.mark.usefixtures("no_imports")
def test_loading_does_not_raise_either() -> None:
    Report().load()


def test_nobody_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys, "stderr", Full())
    Report()("something happened")
    monkeypatch.setattr(logging.getLogger("barnabas"), "handlers", [])
    silent("something happened", cause=Unspeakable())


class Unspeakable:
    def __str__(self) -> str:
        raise MemoryError
