"""Runs the command line inside the test."""

from __future__ import annotations

import json
import sys
from typing import Any

from click.testing import CliRunner, Result

from barnabas.cli import main

COMMAND = [sys.executable, "-c", "from barnabas.cli import main; main(prog_name='barnabas')"]
"""For what needs a process of its own."""


def run(*arguments: str, stdin: str | bytes | None = None, code: int = 0) -> Result:
    """The result of a command that must end with ``code``."""
    result = CliRunner().invoke(main, list(arguments), input=stdin, prog_name="barnabas")
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def json_lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]
