"""Transcripts of state machines (as in etcd raft): commands and the machine's output.

    command                  one or more lines
    ----
    what is expected         up to an empty line

``BARNABAS_REWRITE=1 pytest tests/scenarios`` writes what the machines answer now into the files: read the diff.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest

from tests.scenarios.group_commands import GroupScenario
from tests.scenarios.metadata_commands import MetadataScenario
from tests.scenarios.raft_commands import RaftScenario
from tests.scenarios.txn_commands import TxnScenario

FOLDER = Path(__file__).parent
SEPARATOR = "----"


class Scenario(Protocol):
    def run(self, command: list[str]) -> list[str]:
        """What the machine answers to a command of one or more lines."""


MACHINES: dict[str, Callable[[], Scenario]] = {
    "group": GroupScenario,
    "metadata": MetadataScenario,
    "raft": RaftScenario,
    "txn": TxnScenario,
}


class Step(NamedTuple):
    line: int
    before: list[str]
    """Comments and empty lines above the command."""
    command: list[str]
    expected: list[str]


def parse(text: str) -> Iterator[Step]:
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        before, command, expected = [], [], []
        while at < len(lines) and (not lines[at].strip() or lines[at].startswith("#")):
            before.append(lines[at])
            at += 1
        start = at + 1
        while at < len(lines) and lines[at] != SEPARATOR:
            command.append(lines[at])
            at += 1
        at += 1
        while at < len(lines) and lines[at].strip():
            expected.append(lines[at])
            at += 1
        yield Step(start, before, command, expected)


def files() -> list[Path]:
    return sorted(FOLDER.glob("*.txt"))


def play(path: Path) -> Iterator[tuple[Step, list[str]]]:
    """The machine is the file's first word: metadata_topics.txt is about the metadata machine."""
    scenario = MACHINES[path.stem.partition("_")[0]]()
    for step in parse(path.read_text()):
        yield step, scenario.run(step.command) if step.command else []


@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    if os.environ.get("BARNABAS_REWRITE"):
        rewrite(path)
    for step, answer in play(path):
        assert answer == step.expected, f"{path.name}:{step.line}: {' / '.join(step.command)}"


def rewrite(path: Path) -> None:
    lines: list[str] = []
    for step, answer in play(path):
        lines += [*step.before, *step.command]
        if step.command:
            lines += [SEPARATOR, *answer]
    path.write_text("\n".join(lines).rstrip() + "\n")


def test_there_are_scenarios_of_every_machine() -> None:
    assert {path.stem.partition("_")[0] for path in files()} == set(MACHINES)
