"""``barnabas pipeline``: what is said about options before anything starts."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from barnabas.cli.pipeline import pipeline
from barnabas.cli.pipeline_spark import Stopped, Stopping
from tests.unit.spark.tables_kit import commit, made, rows

DEADLETTERS = ["deadletters", "orders-dead", "--format", "avro", "--schema", "{}"]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (["--framing", "confluent"], "--framing confluent needs --writer-schema ID=SCHEMA"),
        (["--writer-schema", "7={}"], "--writer-schema is for --framing confluent"),
        (["--framing", "confluent", "--writer-schema", "x={}"], "'x' is not a schema's number"),
    ],
)
def test_writers_schemas(given: list[str], reason: str) -> None:
    found = CliRunner().invoke(pipeline, [*DEADLETTERS, *given])
    assert found.exit_code == 2
    assert reason in found.output


def test_a_table_is_called_what_the_user_called_it(tmp_path: Path) -> None:
    """On a terminal, where brackets and colons could be taken for styles and emojis."""
    folder = tmp_path / "[red]:smile:"
    with made("delta", folder) as table:
        commit(table, [rows(range(3))])
    name = f"delta:{folder}/table"
    command = [sys.executable, "-m", "barnabas", "pipeline", "verify", "[bold]orders", "--table", name, "--offline"]
    output = _on_a_terminal(command)
    assert f"{name} and topic [bold]orders" in output.replace("\r", "").replace("\n", "")


def _on_a_terminal(command: list[str]) -> str:
    ours, theirs = pty.openpty()
    env = {**os.environ, "COLUMNS": "200", "TERM": "dumb"}
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL, env=env) as process:
        os.close(theirs)
        found = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # the other side is closed
                break
            if not part:
                break
            found += part
        process.wait()
    os.close(ours)
    return found.decode()


def test_the_first_interrupt_is_noted_and_the_second_ends_it() -> None:
    cancelled = threading.Event()
    before = signal.getsignal(signal.SIGINT)
    with Stopping() as stopping:
        stopping.take_over(cancel=cancelled.set)
        signal.raise_signal(signal.SIGINT)
        assert stopping.is_asked
        assert cancelled.wait(10)
        with pytest.raises(Stopped):
            stopping.take_over()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
