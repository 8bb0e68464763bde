"""The examples of the README work."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.testing import EmbeddedBroker

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
CONSOLE = re.findall(r"```console\n(.*?)```", README, re.DOTALL)


def test_the_script_with_a_stock_client(shared_broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    script = next(block for block in BLOCKS if "127.0.0.1:9092" in block)
    exec(compile(script.replace("127.0.0.1:9092", shared_broker.bootstrap_servers), "README.md", "exec"), {})
    assert capsys.readouterr().out.splitlines()[-1] == "9 b'9' b'hello 9'"


def test_the_fixture(barnabas_broker: EmbeddedBroker) -> None:
    names: dict[str, object] = {}
    exec(compile(next(block for block in BLOCKS if "barnabas_broker" in block), "README.md", "exec"), names)
    names["test_an_order_arrives"](barnabas_broker)  # type: ignore[operator]


def test_the_documentation_is_up_to_date() -> None:
    from tools import docs

    for path, content in docs.pages().items():
        assert path.read_text(encoding="utf-8") == content, f"{path.name}: run python -m tools.docs"


def test_the_commands_as_typed(tmp_path: Path) -> None:
    """In one shell, in the folder where the broker's data is, with the package's command on the PATH."""
    block = next(block for block in CONSOLE if "barnabas topic create orders" in block)
    typed = [line.removeprefix("$ ") for line in block.splitlines()]
    script = "\n".join(typed).replace("--messages 1000000", "--messages 1000")
    with EmbeddedBroker(data=tmp_path / "data") as broker:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "BARNABAS_BOOTSTRAP": broker.bootstrap_servers}
        done = subprocess.run(
            ["bash", "-e", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    assert 'key=user-7 value={"total": 12}' in done.stdout
    assert 'key user-7  value {"total": 12}' in done.stdout  # log dump has found the record
    assert "Error" not in done.stderr
