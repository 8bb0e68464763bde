"""Scenario commands of the raft machine.

One machine, its disk in the hands of the scenario:

    new 1 [directory=a]             a node
    start [epoch=3] [end=10] [voters=1/a,2/b]
    persisted                       the vote is on the disk
    appended                        the records that the leader asked for are in the log
    flushed 12                      the log is on the disk up to there

A quorum whose messages arrive at once (``raft_nodes``):

    nodes 1 2 3 [observers=4] [auto-join=yes] [directory=z]
    log 1 1x2 2x1                   the epochs of a node's records before it starts
    voted 1 epoch=3 [for=2] [leader=2]
    up 1 2 3, down 1                a process starts, is killed
    replace 3 z                     a node with an empty disk of that directory id, which joins by itself
    cut 1, heal 1                   messages are lost; the sender learns it by the time-out
    run 3000                        milliseconds pass
    append 1 5, resign 1            at a leader
    snapshot 1 4                    of the log up to an offset, which is then removed
    hold-votes 1, mute 1            its disk is stuck; its fetches are lost
    vote 1 from=2/b epoch=5 last=3@10 [pre] [cluster=x] [to=1/a]
    begin 1 leader=2 epoch=5 [cluster=x] [to=1/a]          end 1 leader=2 epoch=5 [successors=1,3]
    fetch 1 from=2/b epoch=5 last=3@10 [cluster=x]         fetch-snapshot 1 epoch=5 key=4-1 [position=0]
    add 1 4, remove 1 2[/b]         asks node 1 for a change of the voters
    show
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.core.raft import events, messages
from barnabas.core.raft.events import Effect, Event, SnapshotKey
from barnabas.core.raft.machine import Identity, QuorumSettings, RaftMachine, UnsupportedQuorum
from barnabas.core.raft.voters import FROM_BOOTSTRAP, Voter, VoterNode, VoterSet
from barnabas.model.errors import ErrorCode, InvariantBroken
from barnabas.model.ids import ZERO_UUID
from barnabas.wire.api.add_raft_voter import AddRaftVoterRequest, Listener
from barnabas.wire.api.remove_raft_voter import RemoveRaftVoterRequest
from barnabas.wire.schema import Message
from tests.scenarios.raft_nodes import CLUSTER, Cluster, ListLog, Node, NodeRandom, voter_of

Options = dict[str, str]


class RaftScenario:
    def __init__(self) -> None:
        self._single = _Single("1/a")
        self._cluster: Cluster | None = None

    def run(self, command: list[str]) -> list[str]:
        (line,) = command
        name, *parts = line.split()
        words = [part for part in parts if "=" not in part]
        options = dict(part.split("=", 1) for part in parts if "=" in part)
        if name == "new":
            self._single, self._cluster = _Single(f"{words[0]}/{options.get('directory', 'a')}"), None
            return ["ok"]
        if name == "nodes":
            self._cluster = _cluster(words, options)
            return ["ok"]
        if self._cluster is None:
            return self._single.run(name, words, options)
        return _Commands(self._cluster).run(name, words, options)


class _Single:
    """One machine. The quorum of one is all that it can be without messages."""

    def __init__(self, name: str) -> None:
        self._log = ListLog()
        identity = Identity(me=_voter(name), cluster_id=CLUSTER, endpoints=())
        self._machine = RaftMachine(identity, self._log, QuorumSettings(), NodeRandom(0))

    def run(self, name: str, words: list[str], options: Options) -> list[str]:
        try:
            effects = self._machine.step(self._event(name, words, options), 0)
        except (UnsupportedQuorum, InvariantBroken) as problem:
            return [f"{type(problem).__name__}: {problem}"]
        machine = self._machine
        state = f"{machine.role.value} epoch={machine.raft_epoch} high_watermark={machine.high_watermark}"
        waits = [] if machine.deadline_ms is None else [f"deadline {machine.deadline_ms}"]
        return [*(line for effect in effects for line in self._described(effect)), state, *waits]

    def _event(self, name: str, words: list[str], options: Options) -> Event:
        if name == "start":
            voters = VoterSet(tuple(VoterNode(_voter(text)) for text in options.get("voters", "1/a").split(",")))
            end = int(options.get("end", "0"))
            self._log.epochs = [1] * end
            vote = events.Vote(int(options.get("epoch", "0")), -1, -1, ZERO_UUID)
            return events.Start(vote, ((0 if end else FROM_BOOTSTRAP, voters),), end)
        if name == "persisted":
            return events.VotePersisted()
        if name == "appended":
            self._log.epochs.append(self._machine.raft_epoch)
            return events.LogAppended()
        assert name == "flushed", name
        return events.LogSynced(int(words[0]))

    def _described(self, effect: Effect) -> list[str]:
        match effect:
            case events.PersistVote():
                vote = effect.vote
                directory = vote.voted_directory_id.strip(b"\0").decode() or "-"
                of = f"leader={vote.leader_id} voted={vote.voted_id} directory={directory}"
                return [f"persist epoch={vote.raft_epoch} {of}"]
            case events.AppendControl():
                return ["lead: append the leader-change record" + (" and the voters" if effect.voters else "")]
            case events.HighWatermark():
                return [f"high watermark -> {effect.offset}"]
            case events.LeadershipBegins():
                return ["leadership begins"]
        return []


def _cluster(words: list[str], options: Options) -> Cluster:
    cluster = Cluster([int(word) for word in words])
    for word in words:
        cluster.nodes[int(word)] = Node(cluster, int(word))
    for word in options.get("observers", "").split(","):
        if word:
            node = Node(cluster, int(word), auto_join="auto-join" in options, directory=options.get("directory", ""))
            node.bootstrap_voters = VoterSet()
            cluster.nodes[int(word)] = node
    return cluster


class _Commands:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def run(self, name: str, words: list[str], options: Options) -> list[str]:
        cluster = self._cluster
        cluster.lines = []
        command: Callable[[list[str], Options], None] = getattr(self, f"_{name.replace('-', '_')}")
        try:
            command(words, options)
        except InvariantBroken as problem:
            cluster.lines.append(f"InvariantBroken: {problem}")
        return cluster.lines or ["ok"]

    def _node(self, words: list[str]) -> Node:
        return self._cluster.nodes[int(words[0])]

    def _log(self, words: list[str], options: Options) -> None:
        self._node(words).log = ListLog()
        for word in words[1:]:
            epoch, _, count = word.partition("x")
            self._node(words).log.epochs += [int(epoch)] * int(count)
        self._node(words).log.voters[0] = self._cluster.voters

    def _voted(self, words: list[str], options: Options) -> None:
        voted = voter_of(int(options["for"])) if "for" in options else Voter(-1, ZERO_UUID)
        leader_id = int(options.get("leader", "-1"))
        self._node(words).vote = events.Vote(int(options["epoch"]), leader_id, voted.node_id, voted.directory_id)

    def _up(self, words: list[str], options: Options) -> None:
        for word in words:
            self._node([word]).start()

    def _down(self, words: list[str], options: Options) -> None:
        for word in words:
            self._node([word]).kill()

    def _replace(self, words: list[str], options: Options) -> None:
        node = Node(self._cluster, int(words[0]), auto_join=True, directory=words[1])
        node.bootstrap_voters = VoterSet()
        self._cluster.nodes[node.id] = node

    def _cut(self, words: list[str], options: Options) -> None:
        self._cluster.cut |= {int(word) for word in words}

    def _heal(self, words: list[str], options: Options) -> None:
        self._cluster.cut -= {int(word) for word in words}

    def _run(self, words: list[str], options: Options) -> None:
        self._cluster.run(int(words[0]))

    def _append(self, words: list[str], options: Options) -> None:
        self._node(words).append(int(words[1]))

    def _hold_votes(self, words: list[str], options: Options) -> None:
        self._node(words).holds_votes = True

    def _mute(self, words: list[str], options: Options) -> None:
        self._node(words).is_mute = True

    def _resign(self, words: list[str], options: Options) -> None:
        self._node(words).step(events.Resign())

    def _snapshot(self, words: list[str], options: Options) -> None:
        log, end_offset = self._node(words).log, int(words[1])
        log.log_start_offset, log.log_start_epoch = end_offset, log.epochs[end_offset - 1]
        log.latest_snapshot = SnapshotKey(end_offset, log.log_start_epoch)
        self._cluster.snapshot_voters = log.snapshot_voters = self._node(words).machine.history.before(end_offset)

    def _show(self, words: list[str], options: Options) -> None:
        for node in self._cluster.nodes.values():
            if not hasattr(node, "machine"):
                continue
            state = f"{node.machine.role.value} epoch={node.machine.raft_epoch}" if node.is_up else "down"
            voters = ",".join(str(voter.node_id) for voter in node.machine.voters)
            offsets = f"log={node.log} high_watermark={node.machine.high_watermark} voters={voters}"
            self._cluster.lines.append(f"{node.id} {state} {offsets}")

    # Single messages

    def _ask(self, node: Node, request: Message, describe: Callable[[Any], str]) -> None:
        answers: list[str] = []
        node.step(events.Received(lambda response: answers.append(describe(response)), request))
        self._cluster.lines += answers or ["no answer yet"]

    def _vote(self, words: list[str], options: Options) -> None:
        node, candidate = self._node(words), _voter(options["from"])
        last_epoch, end_offset = map(int, options["last"].split("@"))
        request = messages.vote_request(
            options.get("cluster", CLUSTER),
            candidate,
            _voter(options["to"]) if "to" in options else node.voter,
            raft_epoch=int(options["epoch"]),
            last_epoch=last_epoch,
            end_offset=end_offset,
            pre_vote="pre" in words,
        )
        self._ask(node, request, lambda answer: _answered(answer, "vote_granted"))

    def _begin(self, words: list[str], options: Options) -> None:
        node, leader_id = self._node(words), int(options["leader"])
        to = _voter(options["to"]) if "to" in options else node.voter
        endpoints = (("CONTROLLER", f"host{leader_id}", 9093),)
        cluster_id = options.get("cluster", CLUSTER)
        request = messages.begin_request(cluster_id, voter_of(leader_id), to, int(options["epoch"]), endpoints)
        self._ask(node, request, _answered)

    def _end(self, words: list[str], options: Options) -> None:
        leader_id = int(options["leader"])
        successors = [voter_of(int(word)) for word in options.get("successors", "").split(",") if word]
        endpoints = (("CONTROLLER", f"host{leader_id}", 9093),)
        epoch = int(options["epoch"])
        request = messages.end_request(
            options.get("cluster", CLUSTER), voter_of(leader_id), epoch, successors, endpoints
        )
        self._ask(self._node(words), request, _answered)

    def _fetch(self, words: list[str], options: Options) -> None:
        last_epoch, offset = map(int, options["last"].split("@"))
        request = messages.fetch_request(
            options.get("cluster", CLUSTER),
            _voter(options["from"]),
            raft_epoch=int(options["epoch"]),
            offset=offset,
            last_epoch=last_epoch,
            high_watermark=-1,
            max_bytes=100,
            max_wait_ms=0,
        )
        self._ask(self._node(words), request, _fetched)

    def _fetch_snapshot(self, words: list[str], options: Options) -> None:
        end_offset, epoch = map(int, options["key"].split("-"))
        request = messages.snapshot_request(
            options.get("cluster", CLUSTER),
            voter_of(9),
            raft_epoch=int(options["epoch"]),
            end_offset=end_offset,
            snapshot_epoch=epoch,
            position=int(options.get("position", "0")),
            max_bytes=4,
        )
        self._ask(self._node(words), request, _answered)

    def _add(self, words: list[str], options: Options) -> None:
        new = self._cluster.nodes[int(words[1])]
        listeners = [Listener("CONTROLLER", f"host{new.id}", 9093)]
        cluster_id = options.get("cluster", CLUSTER)
        request = AddRaftVoterRequest(cluster_id, 1000, new.id, new.voter.directory_id, listeners)
        self._change(words, request)

    def _remove(self, words: list[str], options: Options) -> None:
        voter = _voter(words[1]) if "/" in words[1] else self._cluster.nodes[int(words[1])].voter
        request = RemoveRaftVoterRequest(options.get("cluster", CLUSTER), voter.node_id, voter.directory_id)
        self._change(words, request)

    def _change(self, words: list[str], request: Message) -> None:
        cluster = self._cluster

        def describe(response: Any) -> None:
            message = f": {response.error_message}" if response.error_message else ""
            cluster.lines.append(f"{cluster.now_ms:>5} answer {ErrorCode(response.error_code).name}{message}")

        self._node(words).step(events.Received(describe, request))


def _answered(response: Any, extra: str = "") -> str:
    answer = messages.read_answer(response)
    if answer.top_error:
        return ErrorCode(answer.top_error).name
    at = f" at {answer.leader.address}" if answer.leader.address else ""
    told = f" {extra}={getattr(answer.partition, extra)}" if extra else ""
    known = f"leader={answer.leader.leader_id}{at} epoch={answer.leader.raft_epoch}"
    return f"{ErrorCode(answer.error_code).name} {known}{told}"


def _fetched(response: Any) -> str:
    text = _answered(response)
    if response.error_code:
        return text
    partition = response.responses[0].partitions[0]
    text += f" high_watermark={partition.high_watermark} records={len(partition.records)}"
    if partition.diverging_epoch.epoch >= 0:
        text += f" diverging={partition.diverging_epoch.epoch}@{partition.diverging_epoch.end_offset}"
    if partition.snapshot_id.end_offset >= 0:
        text += f" snapshot={partition.snapshot_id.end_offset}-{partition.snapshot_id.epoch}"
    return text


def _voter(text: str) -> Voter:
    node, _, directory = text.partition("/")
    return voter_of(int(node), directory)
