"""Commands whose output cannot be written, and commands that are interrupted."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from barnabas.cli import bench_tools, main
from barnabas.cli.bench import Delivery
from barnabas.cli.interrupts import Deferred, Interrupt
from barnabas.cli.output import is_output_error
from barnabas.client.wire import Client
from barnabas.testing import EmbeddedBroker
from tests.unit.cli.command_line import COMMAND, run

needs_full_device = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this machine")


@pytest.fixture
def filled(shared_broker: EmbeddedBroker, new_topic: Callable[[], str]) -> tuple[str, str]:
    """An address, and a topic of 30,000 messages."""
    topic, address = new_topic(), shared_broker.bootstrap_servers
    run("bench", "produce", "-n", "30000", "-s", "10", "-t", topic, "--keep", "-b", address)
    return address, topic


# Output that cannot be written


@needs_full_device
@pytest.mark.parametrize(
    "command",
    [
        ["--help"],
        ["topic", "--help"],
        ["--version"],
        ["wire", "list"],
        ["consume", "TOPIC"],
        ["consume", "TOPIC", "--json"],
        ["consume", "TOPIC", "--group", "full-device"],
        ["topic", "list"],
        ["topic", "describe", "TOPIC", "--json"],
        ["log", "dump", "DATA", "--quiet"],
    ],
    ids=" ".join,
)
def test_a_full_disk_is_one_sentence(
    command: list[str], filled: tuple[str, str], shared_broker: EmbeddedBroker
) -> None:
    address, topic = filled
    names = {"TOPIC": topic, "DATA": f"{shared_broker.data}/{topic}-0"}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, *(names.get(word, word) for word in command)],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "BARNABAS_BOOTSTRAP": address},
        )
    assert done.stderr == "Error: Cannot write to standard output: no space left on device.\n"
    assert done.returncode == 1


def test_a_full_disk_elsewhere_is_not_taken_for_the_output() -> None:
    def write_table() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space left") as caught:
        write_table()
    assert not is_output_error(caught.value)


@pytest.mark.parametrize("command", [["consume", "TOPIC"], ["wire", "list"]], ids=" ".join)
@pytest.mark.parametrize("redirection", ["| head -1", ">&-"])
def test_a_reader_that_goes_away_is_no_error(command: list[str], redirection: str, filled: tuple[str, str]) -> None:
    address, topic = filled
    words = [topic if word == "TOPIC" else word for word in command]
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f'"$@" {redirection}', "bash", *COMMAND, *words],
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "BARNABAS_BOOTSTRAP": address},
    )
    assert done.stderr == ""
    assert done.returncode == 0


def test_a_broker_whose_output_is_not_read_serves_and_stops_cleanly(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        first = process.stdout.readline()
        process.stdout.close()
        with Client(first.rpartition(" ")[2].strip()) as client:
            client.load(None)
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == ""
        assert process.wait() == 0
    assert (tmp_path / ".kafka_cleanshutdown").exists()


# Ctrl-C


def interrupted_bench(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    """Ctrl-C comes at the first line of progress."""
    monkeypatch.setattr(bench_tools.Progress, "show", lambda _self, _count: signal.raise_signal(signal.SIGINT))
    return CliRunner().invoke(main, ["bench", *arguments], prog_name="barnabas")


@pytest.mark.parametrize("test", ["produce", "latency"])
def test_an_interrupted_bench_says_over_how_much_it_measured(
    test: str, monkeypatch: pytest.MonkeyPatch, shared_broker: EmbeddedBroker
) -> None:
    done = interrupted_bench(monkeypatch, test, "-n", "1000000", "-b", shared_broker.bootstrap_servers)
    assert done.exit_code == 130
    assert done.stderr.startswith("Interrupted: measured over ")
    assert done.stderr.endswith(" of 1,000,000 messages asked for.\n")
    assert "messages per second" in done.stdout


def test_an_interrupted_bench_of_a_consumer_says_so_too(
    monkeypatch: pytest.MonkeyPatch, filled: tuple[str, str]
) -> None:
    address, topic = filled
    done = interrupted_bench(monkeypatch, "consume", "-t", topic, "-b", address)
    assert done.exit_code == 130
    assert done.stderr.endswith(" of 30,000 messages asked for.\n")
    shown = json.loads(interrupted_bench(monkeypatch, "consume", "-t", topic, "-b", address, "--json").stdout)
    assert shown["interrupted"] is True
    assert 0 < shown["messages"] < 30000


def test_a_bench_interrupted_while_it_fills_the_topic_measures_nothing(
    monkeypatch: pytest.MonkeyPatch, shared_broker: EmbeddedBroker
) -> None:
    done = interrupted_bench(monkeypatch, "consume", "-b", shared_broker.bootstrap_servers)
    assert done.exit_code == 130
    assert done.stdout == ""
    assert done.stderr == "Interrupted before anything was measured.\n"


def test_an_interrupt_inside_a_callback_of_librdkafka_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, shared_broker: EmbeddedBroker
) -> None:
    count = Delivery.count

    def interrupted(self: Delivery, error: object, message: object) -> None:
        signal.raise_signal(signal.SIGINT)
        count(self, error, message)

    monkeypatch.setattr(Delivery, "count", interrupted)
    done = CliRunner().invoke(main, ["bench", "produce", "-b", shared_broker.bootstrap_servers], prog_name="barnabas")
    assert done.exit_code == 130
    assert "Interrupted: " in done.stderr


def test_a_finished_bench_was_not_interrupted(shared_broker: EmbeddedBroker) -> None:
    done = run("bench", "produce", "-n", "10", "--json", "-b", shared_broker.bootstrap_servers)
    assert json.loads(done.stdout)["interrupted"] is False
    assert done.stderr == ""


def test_a_message_that_is_too_large_is_one_sentence(shared_broker: EmbeddedBroker) -> None:
    done = run("bench", "produce", "-n", "1", "-s", "2000000", "-b", shared_broker.bootstrap_servers, code=1)
    assert done.stderr == "Error: Unable to produce message: Broker: Message size too large.\n"


@pytest.fixture
def raised_by_ctrl_c() -> Iterator[None]:
    """A shell starts background jobs with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("raised_by_ctrl_c")
def test_ctrl_c_is_a_flag_or_comes_later() -> None:
    with Interrupt() as interrupt:
        assert not interrupt.seen
        signal.raise_signal(signal.SIGINT)
        assert interrupt.seen
    done = []
    with pytest.raises(KeyboardInterrupt), Deferred():
        done += [signal.raise_signal(signal.SIGINT), "finished"]
    assert done[-1] == "finished"
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
