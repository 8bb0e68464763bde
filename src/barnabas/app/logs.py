"""The log of a serving process: lines for a person at a terminal, JSON for everything else."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def make_report() -> Callable[..., None]:
    """``report(event, **fields)``. structlog is loaded with the first line: most starts are silent."""
    logger: Any = None

    def report(event: str, **fields: Any) -> None:
        nonlocal logger
        if logger is None:
            logger = _make_logger()
        level = "error" if "exc_info" in fields else "warning"
        getattr(logger, level)(event, **fields)

    return report


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
    import logging  # noqa: PLC0415 -- only when there is something to say

    exception = fields.pop("exc_info", None)
    text = " ".join(f"{key}={value}" for key, value in fields.items())
    logging.getLogger("barnabas").warning("%s %s", event, text, exc_info=exception)
