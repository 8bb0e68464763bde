"""A process that stands for a fork of another one: to whoever starts it and ends it there is no difference."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.app.settings_loader import ENVIRONMENT_PREFIX
from barnabas.spark import interpreter, warm, warm_start
from tests.reliability.raw import wait_until

pytestmark = pytest.mark.skipif(os.name != "posix", reason="there is no fork")

TOLD = """
import atexit, json, os, sys, threading, time
import string  # the helper has it already
line = sys.stdin.readline()
def later():
    time.sleep(0.1)
    print("a thread has ended", flush=True)
threading.Thread(target=later).start()
atexit.register(print, "at exit")
told = {"argv": sys.argv[1:], "name": __name__, "path": sys.path[:2], "folder": os.getcwd(), "line": line}
told |= {"mine": os.environ.get("MINE"), "helpers": os.environ.get("HELPERS")}
told |= {"parent": os.getppid(), "pid": os.getpid()}
print(json.dumps(told), flush=True)
print("to the errors", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""

FAILS = "raise ValueError('as it should')"

STAYS = """
import os, time
print(os.getpid(), flush=True)
time.sleep(600)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "warm" / "socket"


@pytest.fixture
def helper(place: Path) -> Iterator[subprocess.Popen[bytes]]:
    place.parent.mkdir()
    command = [sys.executable, "-m", "barnabas.spark.warm", str(place), "string"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, "HELPERS": "1"}) as process:
        wait_until(place.exists, "it listens")
        yield process
        process.communicate()
    assert process.returncode == 0
    assert not place.parent.exists()


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    folder = tmp_path / "modules"
    folder.mkdir()
    for name, text in (("told", TOLD), ("fails", FAILS), ("stays", STAYS)):
        (folder / f"{name}.py").write_text(text)
    return folder


def command(place: Path, module: str, *arguments: str) -> list[str]:
    own = [sys.executable, "-I", "-S", warm_start.__file__, str(place)]
    return [*own, sys.executable, "-m", module, *arguments]


def environment(modules: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(modules), "MINE": "yes"}


def staying(place: Path, modules: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(command(place, "stays"), env=environment(modules), stdout=subprocess.PIPE, text=True)


def run(place: Path, modules: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(place, module, *arguments),
        env=environment(modules),
        cwd=modules,
        input="a line\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("code", [0, 3])
def test_a_fork_is_what_was_asked_for(helper: subprocess.Popen[bytes], place: Path, modules: Path, code: int) -> None:
    done = run(place, modules, "told", str(code), "two words")
    first, *rest = done.stdout.splitlines()
    told: dict[str, Any] = json.loads(first)
    assert told.pop("parent") == helper.pid
    assert told.pop("pid") != helper.pid
    assert told == {
        "argv": [str(code), "two words"],
        "name": "__main__",
        "path": [str(modules), str(modules)],
        "folder": str(modules),
        "line": "a line\n",
        "mine": "yes",
        "helpers": None,
    }
    assert rest == ["a thread has ended", "at exit"]
    assert (done.returncode, done.stderr) == (code, "to the errors\n")


def test_an_exception_is_told(helper: subprocess.Popen[bytes], place: Path, modules: Path) -> None:
    done = run(place, modules, "fails")
    assert done.returncode == 1
    assert "ValueError: as it should" in done.stderr
    assert run(place, modules, "told", "0").returncode == 0, "the helper goes on"


def test_without_a_helper_it_is_started_as_ever(place: Path, modules: Path) -> None:
    done = run(place, modules, "told", "4")
    assert json.loads(done.stdout.splitlines()[0])["parent"] == os.getpid()
    assert (done.returncode, done.stderr) == (4, "to the errors\n")


def test_a_helper_that_hangs_up_is_done_without(tmp_path: Path, modules: Path) -> None:
    place = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen()
        thread = threading.Thread(target=_hang_up, args=(listener,))
        thread.start()
        assert run(place, modules, "told", "0").returncode == 0
        thread.join()


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.usefixtures("helper")
def test_what_ends_one_ends_the_other(place: Path, modules: Path, by: signal.Signals) -> None:
    with staying(place, modules) as process:
        assert process.stdout is not None
        fork = int(process.stdout.readline())
        process.send_signal(by)
        assert process.wait(60) == -by
        wait_until(lambda: not _is_there(fork), "the fork ends")


@pytest.mark.usefixtures("helper")
def test_a_fork_that_is_killed_ends_the_process_that_stands_for_it(place: Path, modules: Path) -> None:
    with staying(place, modules) as process:
        assert process.stdout is not None
        os.kill(int(process.stdout.readline()), signal.SIGKILL)
        assert process.wait(60) == 1


def _hang_up(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    connection.close()


def _is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_script_asks_for_planning_processes_alone(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    script = Path(interpreter.worker_python({"XDG_CACHE_HOME": str(tmp_path)})).read_text()
    assert f'"-m {interpreter.RUNNER}"' in script
    assert f'"${interpreter.WARM}"' in script


def test_one_helper_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setattr(warm, "_helper", None)
    monkeypatch.setenv(interpreter.WARM, "of before")  # so that it is put back as it was
    stops: list[Any] = []
    monkeypatch.setattr(warm.atexit, "register", lambda *call: stops.append(call))
    warm.keep_warm()
    warm.keep_warm()
    ((stop, *given),) = stops
    try:
        wait_until(Path(os.environ[interpreter.WARM]).exists, "it listens")
    finally:
        stop(*given)
    assert not Path(os.environ[interpreter.WARM]).parent.exists()


def test_a_broker_does_not_take_the_variable_for_a_setting() -> None:
    assert not interpreter.WARM.startswith(ENVIRONMENT_PREFIX)
