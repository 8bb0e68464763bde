"""The log of a serving process: lines for a person at a terminal, JSON for everything else.

A report never raises: it is made where something has gone wrong, and the code after it must run even in a process
without descriptors or with a failing disk.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

LOAD_DELAY_S = 2.0
"""How long after the start structlog is loaded: late enough for the first message, early enough for most trouble."""


class Report:
    """``report(event, **fields)``. structlog is loaded by ``load`` or with the first line: most starts are silent."""

    def __init__(self) -> None:
        self._logger: Any = None

    def load(self) -> None:
        """Makes ready for a time at which no module can be loaded any more."""
        with contextlib.suppress(Exception):
            self._logger = self._logger or _make_logger()

    def __call__(self, event: str, **fields: Any) -> None:
        try:
            self._logger = self._logger or _make_logger()
            level = "error" if "exc_info" in fields else "warning"
            getattr(self._logger, level)(event, **fields)
        except Exception as problem:
            _say_plainly(event, fields, problem)


def _say_plainly(event: str, fields: dict[str, Any], problem: Exception) -> None:
    """Writes to stderr without the logger; gives up silently if that fails too."""
    with contextlib.suppress(Exception):
        text = " ".join(f"{key}={value!r}" for key, value in fields.items())
        sys.stderr.write(f"barnabas: {event} {text} (not in the log's own form: {problem!r})\n")
        sys.stderr.flush()


def _make_logger() -> Any:
    import structlog  # noqa: PLC0415 -- costs 30 ms, which a start has better use for

    person = sys.stderr.isatty()
    renderer: Any = structlog.dev.ConsoleRenderer() if person else structlog.processors.JSONRenderer()
    processors: list[Any] = [structlog.processors.add_log_level, structlog.processors.TimeStamper(fmt="iso")]
    if not person:
        processors.append(structlog.processors.format_exc_info)
    return structlog.wrap_logger(
        structlog.PrintLogger(sys.stderr), processors=[*processors, renderer], cache_logger_on_first_use=True
    )


def silent(event: str, **fields: Any) -> None:
    """For a broker inside someone else's process: through the logging module, which the host configures or not."""
    try:
        import logging  # noqa: PLC0415 -- only when there is something to say

        text = " ".join(f"{key}={value}" for key, value in fields.items() if key != "exc_info")
        logging.getLogger("barnabas").warning("%s %s", event, text, exc_info=fields.get("exc_info"))
    except Exception as problem:
        _say_plainly(event, fields, problem)
