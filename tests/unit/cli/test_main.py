"""The command as a whole: help, errors, what it loads."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from barnabas.cli.options import parse_time
from barnabas.cli.output import safe_text, size_text, time_text
from tests.unit.cli.command_line import run

COMMANDS = [
    "topic",
    "topic create",
    "topic list",
    "topic describe",
    "topic alter",
    "topic delete",
    "produce",
    "consume",
    "log",
    "log dump",
    "wire",
    "wire decode",
    "wire encode",
    "bench",
    "bench produce",
    "bench consume",
    "bench latency",
]


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_ends_with_examples(command: str) -> None:
    text = run(*command.split(), "--help").stdout
    assert "Examples:" in text
    assert f"barnabas {command}".strip() in text.split("Examples:")[1]


def test_every_command_is_listed() -> None:
    text = run("--help").stdout
    for name in ("serve", "topic", "produce", "consume", "log", "wire", "bench"):
        assert f"  {name} " in text


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["topic", "create"], ["topic", "alter", "x"], ["consume", "x", "-o", "y"]]
)
def test_a_wrong_call_ends_with_2(arguments: list[str]) -> None:
    assert "Error: " in run(*arguments, code=2).stderr


@pytest.mark.parametrize(
    "arguments",
    [["topic", "list"], ["consume", "x"], ["produce", "x", "-m", "y"], ["bench", "produce"], ["topic", "create", "x"]],
)
def test_a_broker_that_is_not_there_is_named(arguments: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    told = run(*arguments, "-b", address, code=1).stderr
    hint = f"Start one with: barnabas serve --listen {address}"
    assert told == f"Error: No broker answers at {address}: connection refused. {hint}\n"


def test_help_loads_nothing_heavy() -> None:
    script = """
import sys
from barnabas.cli import main
try:
    main(["--help"], prog_name="barnabas")
finally:
    heavy = {"confluent_kafka", "rich", "structlog", "uvloop", "asyncio", "msgspec", "barnabas.wire"}
    print(sorted(heavy & set(sys.modules)), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=os.environ, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20+00:00", 1_700_000_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("-1h", 100_000_000 - 3_600_000),
        ("-1.5s", 100_000_000 - 1500),
        ("-2d", 100_000_000 - 172_800_000),
    ],
)
def test_times_are_read(text: str, found: int) -> None:
    assert parse_time(text, now_ms=100_000_000) == found


@pytest.mark.parametrize("text", ["", "yesterday", "-1y", "1.5", "12:00"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no time"):
        parse_time(text)


def test_texts_are_safe_for_a_terminal() -> None:
    assert safe_text("grüße\t日本".encode()) == "grüße\t日本"
    assert safe_text(b"\x1b[2J\xff\n") == "\\x1b[2J\\xff\\n"
    assert safe_text(None) == "null"
    assert size_text(1536) == "1.5 KB"
    assert time_text(-1) == "-"
    assert time_text(1 << 62) == str(1 << 62)
