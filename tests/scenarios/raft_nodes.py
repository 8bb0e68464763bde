"""A quorum of raft machines on one clock: logs are lists of epochs, messages arrive at once, syncs are immediate."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from itertools import groupby
from typing import Any

from barnabas.core.raft import events
from barnabas.core.raft.events import Effect, Event, SnapshotKey
from barnabas.core.raft.machine import Identity, QuorumSettings, RaftMachine
from barnabas.core.raft.voters import FROM_BOOTSTRAP, Voter, VoterNode, VoterSet
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ports import Address
from barnabas.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse, SupportedFeatureKey
from barnabas.wire.schema import Message

CLUSTER = "cluster"
MAX_STEPS = 5000


class NodeRandom:
    """A node of a higher number waits longer. Of a few things, each is chosen in turn."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._turn = 0

    def randrange(self, start: int, stop: int, /) -> int:
        if stop - start < 10:
            self._turn += 1
            return start + self._turn % (stop - start)
        return min(start + self._node_id * 10, stop - 1)

    def randbytes(self, n: int, /) -> bytes:
        return bytes(n)


def voter_of(node_id: int, directory: str = "") -> Voter:
    return Voter(node_id, (directory or chr(ord("a") + node_id - 1)).encode().rjust(16, b"\0"))


def node_of(node_id: int) -> VoterNode:
    return VoterNode(voter_of(node_id), (("CONTROLLER", f"host{node_id}", 9093),))


class ListLog:
    """Epochs by offset. The voter sets in it are kept beside it."""

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.voters: dict[int, VoterSet] = {}
        self.log_start_offset = 0
        self.log_start_epoch = 0
        self.latest_snapshot: SnapshotKey | None = None
        self.snapshot_voters = VoterSet()

    @property
    def log_end_offset(self) -> int:
        return len(self.epochs)

    @property
    def latest_epoch(self) -> int:
        return self.epochs[-1] if self.epochs else 0

    def end_offset_for_epoch(self, raft_epoch: int) -> tuple[int, int]:
        end = max((at + 1 for at, epoch in enumerate(self.epochs) if epoch <= raft_epoch), default=0)
        return (self.epochs[end - 1] if end else 0), max(end, self.log_start_offset)

    def snapshot_bytes(self, key: SnapshotKey) -> int | None:
        return 10 if key == self.latest_snapshot else None

    def truncate(self, offset: int) -> None:
        del self.epochs[offset:]
        self.voters = {at: voters for at, voters in self.voters.items() if at < offset}

    def __str__(self) -> str:
        kept = self.epochs[self.log_start_offset :]
        runs = " ".join(f"{epoch}x{len(list(run))}" for epoch, run in groupby(kept))
        return (f"{self.log_start_offset}.. " if self.log_start_offset else "") + (runs or "-")


class Node:
    def __init__(self, cluster: Cluster, node_id: int, *, auto_join: bool = False, directory: str = "") -> None:
        self.cluster = cluster
        self.id = node_id
        self.voter = voter_of(node_id, directory)
        self.log = ListLog()
        self.vote = events.NO_VOTE
        self.is_up = False
        self.holds_votes = False
        self.is_mute = False
        self.parked: list[tuple[events.Park, int]] = []
        self.settings = QuorumSettings(auto_join=auto_join)
        self.bootstrap_voters = cluster.voters
        self._shown = ""

    def start(self) -> None:
        self.is_up = True
        self.parked = []
        identity = Identity(
            me=self.voter,
            cluster_id=CLUSTER,
            endpoints=node_of(self.id).endpoints,
            bootstrap=tuple(Address(f"host{node_id}", 9093) for node_id in self.cluster.nodes),
        )
        self.machine = RaftMachine(identity, self.log, self.settings, NodeRandom(self.id))
        first = self.log.snapshot_voters if self.log.latest_snapshot else self.bootstrap_voters
        at = self.log.latest_snapshot.end_offset - 1 if self.log.latest_snapshot else FROM_BOOTSTRAP
        voters = (
            ((at, first), *sorted(self.log.voters.items())) if len(first) else tuple(sorted(self.log.voters.items()))
        )
        self.step(events.Start(self.vote, voters, self.log.log_end_offset))

    def kill(self) -> None:
        """Its connections break."""
        self.is_up = False
        for park, _ in self.parked:
            park.token(ApiError(ErrorCode.NETWORK_EXCEPTION))  # type: ignore[operator]

    def step(self, event: Event) -> None:
        self._perform(self.machine.step(event, self.cluster.now_ms))
        self._show()
        self._wake()

    def _show(self) -> None:
        text = f"{self.machine.role.value} epoch={self.machine.raft_epoch}"
        if text != self._shown:
            self._shown = text
            self.cluster.lines.append(f"{self.cluster.now_ms:>5} {self.id}: {text}")

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            getattr(self, "_" + re.sub("(?<!^)(?=[A-Z])", "_", type(effect).__name__).lower())(effect)

    def _wake(self) -> None:
        """Parked fetches that have something to be answered with, or have waited long enough."""
        machine = self.machine
        for entry in list(self.parked):
            park, deadline_ms = entry
            has_news = self.log.log_end_offset > park.fetch_offset or machine.high_watermark > park.high_watermark
            if has_news or deadline_ms <= self.cluster.now_ms or not machine.is_leading:
                self.parked.remove(entry)
                self.step(events.Received(park.token, park.request, has_waited=True))
                return

    @property
    def deadline_ms(self) -> int | None:
        times = [deadline_ms for _, deadline_ms in self.parked]
        if self.machine.deadline_ms is not None:
            times.append(self.machine.deadline_ms)
        return min(times, default=None)

    def append(self, count: int) -> None:
        self.log.epochs += [self.machine.raft_epoch] * count
        self.synced()

    def synced(self) -> None:
        self.step(events.LogSynced(self.log.log_end_offset))

    # Effects

    def _send(self, effect: events.Send) -> None:
        if not self.is_mute or effect.lane != events.FETCH_LANE:
            self.cluster.send(self, effect)

    def _reply(self, effect: events.Reply) -> None:
        effect.token(effect.response)  # type: ignore[operator]

    def _reply_records(self, effect: events.ReplyRecords) -> None:
        offset = effect.request.topics[0].partitions[0].fetch_offset
        records = [(epoch, self.log.voters.get(offset + n)) for n, epoch in enumerate(self.log.epochs[offset:])]
        partition: Any = effect.response.responses[0].partitions[0]
        partition.records = records
        effect.token(effect.response)  # type: ignore[operator]

    def _reply_snapshot(self, effect: events.ReplySnapshot) -> None:
        content = bytes(10)[effect.position :][:4]
        effect.response.topics[0].partitions[0].unaligned_records = content
        effect.token(effect.response)  # type: ignore[operator]

    def _park(self, effect: events.Park) -> None:
        self.parked.append((effect, self.cluster.now_ms + effect.max_wait_ms))

    def _persist_vote(self, effect: events.PersistVote) -> None:
        if self.holds_votes:
            return
        self.vote = effect.vote
        self.step(events.VotePersisted())

    def _append_control(self, effect: events.AppendControl) -> None:
        if effect.leader_change is not None:
            self.log.epochs.append(effect.raft_epoch)
        found = []
        if effect.voters is not None:
            self.log.voters[len(self.log.epochs)] = effect.voters
            found = [(len(self.log.epochs), effect.voters)]
            self.log.epochs.append(effect.raft_epoch)
        self.step(events.LogAppended(tuple(found)))
        self.synced()

    def _append_records(self, effect: events.AppendRecords) -> None:
        found = []
        records: Any = effect.records
        for epoch, voters in records:
            if voters is not None:
                self.log.voters[len(self.log.epochs)] = voters
                found.append((len(self.log.epochs), voters))
            self.log.epochs.append(epoch)
        self.step(events.LogAppended(tuple(found)))
        self.synced()

    def _truncate(self, effect: events.Truncate) -> None:
        self.cluster.lines.append(f"{self.cluster.now_ms:>5} {self.id}: truncates to {effect.offset}")
        self.log.truncate(effect.offset)
        self.step(events.LogTruncated())

    def _open_snapshot(self, effect: events.OpenSnapshot) -> None:
        self.step(events.SnapshotOpened(effect.key, 0))

    def _write_snapshot(self, effect: events.WriteSnapshot) -> None:
        self.step(events.SnapshotWritten(effect.key, effect.position + len(effect.content)))

    def _install_snapshot(self, effect: events.InstallSnapshot) -> None:
        key = effect.key
        self.cluster.lines.append(f"{self.cluster.now_ms:>5} {self.id}: installs {key.end_offset}-{key.raft_epoch}")
        self.log.epochs = [key.raft_epoch] * key.end_offset
        self.log.voters = {}
        self.log.log_start_offset, self.log.log_start_epoch = key.end_offset, key.raft_epoch
        self.log.latest_snapshot, self.log.snapshot_voters = key, self.cluster.snapshot_voters
        self.step(events.SnapshotInstalled(key, self.cluster.snapshot_voters))

    def _high_watermark(self, effect: events.HighWatermark) -> None: ...

    def _leadership_begins(self, effect: events.LeadershipBegins) -> None:
        self.cluster.lines.append(f"{self.cluster.now_ms:>5} {self.id}: leads epoch {effect.raft_epoch}")

    def _leadership_ends(self, effect: events.LeadershipEnds) -> None:
        self.cluster.lines.append(f"{self.cluster.now_ms:>5} {self.id}: leads no more")

    def _leader_known(self, effect: events.LeaderKnown) -> None: ...


class Cluster:
    def __init__(self, voter_ids: list[int]) -> None:
        self.now_ms = 0
        self.lines: list[str] = []
        self.voters = VoterSet(tuple(node_of(node_id) for node_id in voter_ids))
        self.snapshot_voters = self.voters
        self.cut: set[int] = set()
        self.nodes: dict[int, Node] = {}
        self._queue: deque[Callable[[], None]] = deque()
        self._later: list[tuple[int, Callable[[], None]]] = []

    def send(self, sender: Node, effect: events.Send) -> None:
        machine = sender.machine
        target = next(node for node in self.nodes.values() if effect.address.host == f"host{node.id}")

        def answer(response: Message | ApiError) -> None:
            self._queue.append(lambda: deliver_back(response))

        def deliver_back(response: Message | ApiError) -> None:
            lost = sender.id in self.cut or target.id in self.cut
            if lost and not isinstance(response, ApiError):
                late = ApiError(ErrorCode.REQUEST_TIMED_OUT)
                self._later.append((self.now_ms + effect.timeout_ms, lambda: answer(late)))
            elif sender.is_up and sender.machine is machine:
                sender.step(events.Responded(effect.node_id, effect.request, response))

        def deliver() -> None:
            if not target.is_up:
                answer(ApiError(ErrorCode.NETWORK_EXCEPTION))
            elif {target.id, sender.id} & self.cut:
                late = ApiError(ErrorCode.REQUEST_TIMED_OUT)
                self._later.append((self.now_ms + effect.timeout_ms, lambda: answer(late)))
            elif isinstance(effect.request, ApiVersionsRequest):
                answer(ApiVersionsResponse(supported_features=[SupportedFeatureKey("kraft.version", 0, 1)]))
            else:
                target.step(events.Received(answer, effect.request))

        self._queue.append(deliver)

    def run(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        for _ in range(MAX_STEPS):
            if self._queue:
                self._queue.popleft()()
            elif not self._pass_time(end_ms):
                self.now_ms = end_ms
                return
        raise AssertionError("the nodes do not come to rest")

    def _pass_time(self, end_ms: int) -> bool:
        up = [(node.deadline_ms, node) for node in self.nodes.values() if node.is_up]
        due = [(deadline_ms, node) for deadline_ms, node in up if deadline_ms is not None and deadline_ms <= end_ms]
        late = [entry for entry in self._later if entry[0] <= end_ms]
        if not due and not late:
            return False
        first_ms = min([deadline_ms for deadline_ms, _ in due] + [time_ms for time_ms, _ in late])
        self.now_ms = max(self.now_ms, first_ms)
        for entry in late:
            if entry[0] == first_ms:
                self._later.remove(entry)
                entry[1]()
        for deadline_ms, node in due:
            if deadline_ms == first_ms:
                node.step(events.TimerFired())
        return True
