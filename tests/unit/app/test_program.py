"""Hints name a command that works where they are printed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.app.program import activation, program


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A command as an environment has it, which runs; its folder is the current one's ``.venv/bin``."""
    scripts = tmp_path / ".venv" / "bin"
    scripts.mkdir(parents=True)
    command = scripts / "barnabas"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    (scripts / "activate").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [".venv/bin/barnabas", "serve"])
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return scripts


def test_a_command_that_is_not_on_the_path_is_named_by_its_path(installed: Path) -> None:
    assert program() == ".venv/bin/barnabas"
    assert activation() == ".venv/bin/activate"


def test_from_elsewhere_the_path_is_whole(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = installed.parents[1] / "other folder"
    other.mkdir()
    monkeypatch.chdir(other)
    monkeypatch.setattr(sys, "argv", [str(installed / "barnabas")])
    assert program() == str(installed / "barnabas")
    assert activation() == str(installed / "activate")


def test_a_command_on_the_path_needs_none(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{installed}:/usr/bin")
    assert program() == "barnabas"
    assert activation() is None


def test_another_command_of_that_name_on_the_path(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "barnabas").write_text("#!/bin/sh\n")
    (other / "barnabas").chmod(0o755)
    monkeypatch.setenv("PATH", str(other))
    assert program() == ".venv/bin/barnabas"


def test_inside_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/pytest"])
    assert program() == "barnabas"


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "[::1]:0"])
def test_the_first_message_can_be_pasted(listen: str) -> None:
    script = Path(sys.executable).parent / "barnabas"
    if not script.exists():
        pytest.skip("the package is not installed in an environment of its own")
    environment = {**os.environ, "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(
        [str(script), "serve", "--memory", "--listen", listen], stdout=subprocess.PIPE, text=True, env=environment
    ) as broker:
        assert broker.stdout is not None
        try:
            hint = next((line for line in broker.stdout if line.startswith("first message: ")), None)
            if hint is None and ":" in listen.rpartition(":")[0]:
                pytest.skip("no IPv6 on this machine")
            assert hint is not None
            pasted = ["bash", "-c", hint.removeprefix("first message: ")]
            done = subprocess.run(pasted, check=True, env=environment, capture_output=True, text=True)
            assert done.stderr.startswith("Sent 1 message to hello")
        finally:
            broker.send_signal(signal.SIGINT)
            broker.communicate()
