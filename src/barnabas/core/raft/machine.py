"""The quorum's rules as a step machine: events in, effects out, no time and no files.

    UNATTACHED --Start--> CANDIDATE --VotePersisted, majority--> LEADER --Flushed--> high watermark

This build runs a quorum of one voter: the node votes for itself, and its own flushed log is the majority. Two rules of
larger quorums hold already. The vote and the new epoch are durable before leadership begins, so no epoch has two
leaders, even across a crash between the two. And the high watermark advances only once a record of the leader's own
epoch is flushed (Raft paper, section 5.4.2); the first such record is the leader-change record.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from barnabas.model.errors import invariant
from barnabas.model.ids import uuid_text


class Role(Enum):
    UNATTACHED = "Unattached"
    CANDIDATE = "Candidate"
    LEADER = "Leader"


class UnsupportedQuorum(Exception):
    """The voters on disk are not this node alone."""


class Voter(Struct, frozen=True):
    node_id: int
    directory_id: bytes


class Vote(Struct, frozen=True):
    """What must be durable before anything else is done: the content of the quorum-state file."""

    raft_epoch: int
    leader_id: int
    voted_id: int
    voted_directory_id: bytes


class Start(Struct, frozen=True):
    raft_epoch: int
    """From the quorum-state file, or from the last record of the log, whichever is higher."""
    voters: tuple[Voter, ...]
    log_end_offset: int


class VotePersisted(Struct, frozen=True):
    raft_epoch: int


class Flushed(Struct, frozen=True):
    """The log is on this node's disk up to ``offset`` (exclusive)."""

    offset: int


Event = Start | VotePersisted | Flushed


class Effects(Struct, frozen=True):
    persist: Vote | None = None
    lead: bool = False
    """Leadership begins: append the leader-change record of this epoch first."""
    high_watermark: int | None = None


NOTHING = Effects()


class RaftMachine:
    def __init__(self, me: Voter) -> None:
        self.me = me
        self.role = Role.UNATTACHED
        self.raft_epoch = 0
        self.voters: tuple[Voter, ...] = ()
        self.high_watermark = -1
        """Unknown (-1) until a record of this epoch is committed; never goes back."""
        self._epoch_start_offset = 0

    def step(self, event: Event) -> Effects:
        match event:
            case Start():
                return self._on_start(event)
            case VotePersisted():
                return self._on_vote_persisted(event)
            case Flushed():
                return self._on_flushed(event)

    def _on_start(self, event: Start) -> Effects:
        invariant(self.role is Role.UNATTACHED, "a node starts once")
        if [voter.node_id for voter in event.voters] == [self.me.node_id] and event.voters != (self.me,):
            named = uuid_text(event.voters[0].directory_id)
            raise UnsupportedQuorum(
                f"the metadata log belongs to the folder with the directory.id {named}, and meta.properties says "
                f"{uuid_text(self.me.directory_id)}: give that file its line directory.id={named} back"
            )
        if event.voters != (self.me,):
            raise UnsupportedQuorum(
                f"the metadata log names the voters {[voter.node_id for voter in event.voters]}; "
                f"this build runs a quorum of one, node {self.me.node_id} with its own folder"
            )
        self.role = Role.CANDIDATE
        self.voters = event.voters
        self.raft_epoch = event.raft_epoch + 1
        self._epoch_start_offset = event.log_end_offset
        return Effects(persist=self._vote(leader_id=-1))

    def _on_vote_persisted(self, event: VotePersisted) -> Effects:
        invariant(self.role is Role.CANDIDATE and event.raft_epoch == self.raft_epoch, "a vote persisted out of turn")
        self.role = Role.LEADER
        return Effects(persist=self._vote(leader_id=self.me.node_id), lead=True)

    def _on_flushed(self, event: Flushed) -> Effects:
        if self.role is not Role.LEADER or event.offset <= max(self._epoch_start_offset, self.high_watermark):
            return NOTHING
        self.high_watermark = event.offset
        return Effects(high_watermark=event.offset)

    def _vote(self, leader_id: int) -> Vote:
        """A leader has no vote to remember beside its epoch; Kafka writes it so."""
        if leader_id >= 0:
            return Vote(self.raft_epoch, leader_id, -1, bytes(16))
        return Vote(self.raft_epoch, -1, self.me.node_id, self.me.directory_id)
