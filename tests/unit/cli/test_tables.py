"""Tables at a terminal, wide and narrow."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from barnabas.cli.bench_tools import report
from barnabas.cli.output import print_table
from barnabas.testing import EmbeddedBroker
from tests.unit.cli.command_line import run

COLUMNS = ["topic", "partition", "committed", "latest", "lag", "lag time", "member"]
ROW = ["orders_of_customers", 0, 123456, 123456, 0, "12s", "consumer-1-856270ba-f616-f2f3-9f9c-d0e3b072d6a7"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[str]]:
    """The lines of a table on a terminal so many columns wide."""

    def show(width: int) -> list[str]:
        terminal = Terminal()
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(sys, "stdout", terminal)
        print_table(COLUMNS, [ROW], title="A_title [of] this")
        return click.unstyle(terminal.getvalue()).splitlines()

    return show


@pytest.mark.parametrize("width", [90, 200])
def test_headers_and_numbers_stay_in_one_piece(shown: Callable[[int], list[str]], width: int) -> None:
    lines = shown(width)
    assert max(map(len, lines)) <= width
    assert lines[0].rstrip() == "A_title [of] this"
    header = next(line for line in lines if "partition" in line)
    assert header.split() == " ".join(COLUMNS).split()
    assert any("123456" in line for line in lines)


@pytest.mark.parametrize("width", [20, 40])
def test_a_narrow_terminal_gets_a_line_for_each_cell(shown: Callable[[int], list[str]], width: int) -> None:
    assert shown(width) == [
        "A_title [of] this",
        "",
        "topic      orders_of_customers",
        "partition  0",
        "committed  123456",
        "latest     123456",
        "lag        0",
        "lag time   12s",
        f"member     {ROW[-1]}",
    ]


def test_measures_have_no_underscores(capsys: pytest.CaptureFixture[str]) -> None:
    measured = {"messages_per_second": 5.0, "end_to_end": {"p50": 1.5}, "messages": 1, "interrupted": False}
    report(measured, as_json=False)
    told = capsys.readouterr().out
    assert "end to end p50" in told
    assert "_" not in told


def test_everything_about_a_group_is_labelled(shared_broker: EmbeddedBroker, new_topic: Callable[[], str]) -> None:
    topic, address = new_topic(), shared_broker.bootstrap_servers
    run("topic", "create", topic, "-b", address)
    run("consume", topic, "--group", topic, "-b", address)
    told = run("group", "describe", topic, "-b", address).stdout
    assert told.startswith(f"Group {topic}  state Empty  protocol consumer  coordinator 1\n")


def test_a_partition_without_records_is_not_called_sound(tmp_path: Path) -> None:
    with EmbeddedBroker(data=tmp_path) as broker:
        run("topic", "create", "quiet", "-b", broker.bootstrap_servers)
        told = run("log", "dump", str(tmp_path / "quiet-0")).stdout
    assert told == f"No log files in {tmp_path / 'quiet-0'}: nothing has been written there yet.\n"
