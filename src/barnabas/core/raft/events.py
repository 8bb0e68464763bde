"""Events and effects of the raft machine, and its view of the log.

A request of another node comes as ``Received`` with a token, which its ``Reply`` (or ``Park``) names again. The answer
to a request of ours comes as ``Responded`` with that request.
"""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct

from barnabas.core.raft.voters import Voter, VoterSet
from barnabas.model.errors import ApiError
from barnabas.model.ids import ZERO_UUID
from barnabas.model.ports import Address, Bytes
from barnabas.wire.api.fetch import FetchRequest, FetchResponse
from barnabas.wire.api.fetch_snapshot import FetchSnapshotResponse
from barnabas.wire.schema import Message
from barnabas.wire.stored.raft import LeaderChangeMessage

VOTE_LANE = "raft"
FETCH_LANE = "raft-fetch"
"""A fetch waits at the leader: a vote on the same connection would wait behind it."""


class Vote(Struct, frozen=True):
    """What must be durable before anything that depends on it is sent: the content of the quorum-state file."""

    raft_epoch: int
    leader_id: int
    voted_id: int
    voted_directory_id: bytes

    @property
    def voted(self) -> Voter | None:
        return Voter(self.voted_id, self.voted_directory_id) if self.voted_id >= 0 else None


NO_VOTE = Vote(0, -1, -1, ZERO_UUID)


class SnapshotKey(Struct, frozen=True):
    end_offset: int
    raft_epoch: int


class LogView(Protocol):
    """What the machine reads of the log. Always the present state: effects of the running step are not in it yet."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_start_epoch(self) -> int:
        """The epoch of the last record before the log start, which the snapshot there has; 0 at offset 0."""

    @property
    def log_end_offset(self) -> int: ...

    @property
    def latest_epoch(self) -> int:
        """Of the last record; of the latest snapshot where the log is empty; else 0."""

    def end_offset_for_epoch(self, raft_epoch: int) -> tuple[int, int]:
        """(the largest epoch not beyond the asked one, where it ends)."""

    @property
    def latest_snapshot(self) -> SnapshotKey | None: ...

    def snapshot_bytes(self, key: SnapshotKey) -> int | None:
        """The size of that snapshot; None where there is none."""


# Events


class Start(Struct, frozen=True):
    vote: Vote
    """From quorum-state; NO_VOTE on the first start."""
    voters: tuple[tuple[int, VoterSet], ...]
    """The voter sets of the latest snapshot and of the log after it, with the offsets of their records."""
    synced_offset: int = 0


class TimerFired(Struct, frozen=True):
    """The deadline has passed."""


class VotePersisted(Struct, frozen=True):
    """The last ``PersistVote`` is on the disk."""


class LogSynced(Struct, frozen=True):
    offset: int
    """The log is on this node's disk up to here (exclusive)."""


class LogAppended(Struct, frozen=True):
    """Answers AppendControl and AppendRecords, with the voter sets among what was appended."""

    voters: tuple[tuple[int, VoterSet], ...] = ()


class AppendFailed(Struct, frozen=True):
    """Answers AppendControl and AppendRecords: nothing was appended."""


class LogTruncated(Struct, frozen=True):
    """Answers Truncate."""


class Received(Struct, frozen=True):
    token: object
    request: Message
    has_waited: bool = False
    """A parked fetch that is to be answered now."""


class Responded(Struct, frozen=True):
    node_id: int
    """-1 for a bootstrap address."""
    request: Message
    response: Any
    """A Message or an ApiError."""

    @property
    def error(self) -> ApiError | None:
        return self.response if isinstance(self.response, ApiError) else None


class SnapshotOpened(Struct, frozen=True):
    """Answers OpenSnapshot: so much of it is on this node already."""

    key: SnapshotKey
    position: int


class SnapshotWritten(Struct, frozen=True):
    """Answers WriteSnapshot."""

    key: SnapshotKey
    position: int


class SnapshotInstalled(Struct, frozen=True):
    """Answers InstallSnapshot: the snapshot is the beginning of the log now."""

    key: SnapshotKey
    voters: VoterSet


class SnapshotFailed(Struct, frozen=True):
    """Answers OpenSnapshot, WriteSnapshot and InstallSnapshot: the file is damaged, or the disk refused."""

    key: SnapshotKey


class Resign(Struct, frozen=True):
    """The node is about to stop, or cannot lead."""


Event = (
    Start
    | TimerFired
    | VotePersisted
    | LogSynced
    | LogAppended
    | AppendFailed
    | LogTruncated
    | Received
    | Responded
    | SnapshotOpened
    | SnapshotWritten
    | SnapshotInstalled
    | SnapshotFailed
    | Resign
)


# Effects


class Send(Struct, frozen=True):
    node_id: int
    address: Address
    lane: str
    request: Message
    timeout_ms: int


class Reply(Struct, frozen=True):
    token: object
    response: Message


class ReplyRecords(Struct, frozen=True):
    """A fetch to be answered with the records from its offset on, as the log has them when this is performed."""

    token: object
    request: FetchRequest
    response: FetchResponse
    raft_epoch: int


class ReplySnapshot(Struct, frozen=True):
    """The response lacks the bytes of that part of the snapshot."""

    token: object
    response: FetchSnapshotResponse
    key: SnapshotKey
    position: int
    max_bytes: int


class Park(Struct, frozen=True):
    """Nothing to answer a fetch with yet: ``Received`` again once the log or the high watermark has passed these."""

    token: object
    request: FetchRequest
    fetch_offset: int
    high_watermark: int
    max_wait_ms: int


class PersistVote(Struct, frozen=True):
    vote: Vote


class AppendControl(Struct, frozen=True):
    """Control records of a leader, in one batch."""

    raft_epoch: int
    leader_change: LeaderChangeMessage | None = None
    voters: VoterSet | None = None
    with_kraft_version: bool = False


class AppendRecords(Struct, frozen=True):
    """Batches of the leader, for the follower's log."""

    records: Bytes


class Truncate(Struct, frozen=True):
    offset: int


class OpenSnapshot(Struct, frozen=True):
    key: SnapshotKey


class WriteSnapshot(Struct, frozen=True):
    key: SnapshotKey
    position: int
    content: Bytes


class InstallSnapshot(Struct, frozen=True):
    key: SnapshotKey


class HighWatermark(Struct, frozen=True):
    offset: int


class LeadershipBegins(Struct, frozen=True):
    """A record of the leader's own epoch is committed."""

    raft_epoch: int


class LeadershipEnds(Struct, frozen=True):
    raft_epoch: int


class LeaderKnown(Struct, frozen=True):
    leader_id: int
    """-1: none is known."""
    raft_epoch: int


Effect = (
    Send
    | Reply
    | ReplyRecords
    | ReplySnapshot
    | Park
    | PersistVote
    | AppendControl
    | AppendRecords
    | Truncate
    | OpenSnapshot
    | WriteSnapshot
    | InstallSnapshot
    | HighWatermark
    | LeadershipBegins
    | LeadershipEnds
    | LeaderKnown
)
