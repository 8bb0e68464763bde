"""Scenario commands of the raft machine.

new 1 [directory=a]             a node
start [epoch=3] [end=10] [voters=1/a,2/b]
persisted [epoch=4]             the vote is on the disk
flushed 12                      the log is on the disk up to there
"""

from __future__ import annotations

from barnabas.core.raft.machine import (
    Effects,
    Event,
    Flushed,
    RaftMachine,
    Start,
    UnsupportedQuorum,
    VotePersisted,
    Voter,
)
from barnabas.model.errors import InvariantBroken


class RaftScenario:
    def __init__(self) -> None:
        self._machine = RaftMachine(_voter("1/a"))

    def run(self, command: list[str]) -> list[str]:
        (line,) = command
        name, *words = line.split()
        options = dict(word.partition("=")[::2] for word in words if "=" in word)
        if name == "new":
            self._machine = RaftMachine(_voter(f"{words[0]}/{options.get('directory', 'a')}"))
            return ["ok"]
        return self._step(self._event(name, words, options))

    def _event(self, name: str, words: list[str], options: dict[str, str]) -> Event:
        if name == "start":
            voters = tuple(map(_voter, options.get("voters", "1/a").split(",")))
            return Start(int(options.get("epoch", "0")), voters, int(options.get("end", "0")))
        if name == "persisted":
            return VotePersisted(int(options.get("epoch", self._machine.raft_epoch)))
        assert name == "flushed", name
        return Flushed(int(words[0]))

    def _step(self, event: Event) -> list[str]:
        try:
            effects = self._machine.step(event)
        except (UnsupportedQuorum, InvariantBroken) as problem:
            return [f"{type(problem).__name__}: {problem}"]
        machine = self._machine
        state = f"{machine.role.value} epoch={machine.raft_epoch} high_watermark={machine.high_watermark}"
        return [*_described(effects), state]


def _described(effects: Effects) -> list[str]:
    lines = []
    if effects.persist is not None:
        vote = effects.persist
        directory = vote.voted_directory_id.strip(b"\0").decode() or "-"
        lines.append(
            f"persist epoch={vote.raft_epoch} leader={vote.leader_id} voted={vote.voted_id} directory={directory}"
        )
    if effects.lead:
        lines.append("lead: append the leader-change record")
    if effects.high_watermark is not None:
        lines.append(f"high watermark -> {effects.high_watermark}")
    return lines


def _voter(text: str) -> Voter:
    node, _, directory = text.partition("/")
    return Voter(int(node), directory.encode().rjust(16, b"\0"))
