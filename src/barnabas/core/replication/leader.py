"""A leader's view of its followers: the in-sync replicas and the high watermark of one partition.

    follower's fetch --> its log end offset --> high watermark, and "in sync again": a proposal to add it
    time passes      --> "not caught up for replica.lag.time.max.ms": a proposal to remove it
    proposal --AlterPartition--> accepted | refused | overtaken by the metadata log

The in-sync replicas belong to the controller: the leader proposes, one change at a time, and the change counts once it
is committed. The high watermark is the lowest log end offset of the *maximal* set, the committed in-sync replicas and
those that a proposal would add (KIP-497): the controller may have accepted a proposal whose answer is still on its way.
A follower outside the set that is caught up holds the high watermark back too, or it could never reach it under load;
one that the metadata fences does neither (KIP-841). Below min.insync.replicas it stands still (KIP-966): what is
visible then is on enough replicas, and any of those that left the set last may lead.

The leader itself counts with the offset up to which its log is as durable as the topic's flush settings ask. The high
watermark never goes back while the leader leads.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from barnabas.model.errors import invariant

NO_BROKER_EPOCH = -1
REFUSED_BACKOFF_MS = 200
"""Between a refused proposal and the next one."""


class Proposal(Struct, frozen=True):
    """In-sync replicas that the leader asks the controller for."""

    in_sync_replicas: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    """Of each replica as its last fetch told, or -1: a replica that restarted is not its former self (KIP-903)."""
    leader_epoch: int
    partition_epoch: int


class Follower:
    """What the leader knows of one follower."""

    __slots__ = ("broker_epoch", "caught_up_ms", "end_offset", "fetched_ms", "is_eligible", "leader_end_offset")

    def __init__(self, end_offset: int, caught_up_ms: int) -> None:
        self.end_offset = end_offset
        """It holds the log up to here, as its fetches say."""
        self.caught_up_ms = caught_up_ms
        """When it last held all that the leader had at the time of its fetch."""
        self.broker_epoch = NO_BROKER_EPOCH
        self.is_eligible = False
        """Whether the metadata lets it be in sync: not fenced, not shutting down, this very incarnation."""
        self.fetched_ms = caught_up_ms
        self.leader_end_offset = 0
        """Of the leader's log at the previous fetch."""

    def fetch(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        if offset >= leader_end_offset:
            self.caught_up_ms = now_ms
        elif offset >= self.leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.end_offset = offset
        self.fetched_ms = now_ms
        self.leader_end_offset = leader_end_offset


class LeaderState:
    __slots__ = (
        "_end_offset",
        "_max_lag_ms",
        "_not_before_ms",
        "_start_offset",
        "followers",
        "high_watermark",
        "in_sync_replicas",
        "leader_epoch",
        "me",
        "min_in_sync",
        "partition_epoch",
        "proposal",
    )

    def __init__(
        self,
        *,
        me: int,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Collection[int],
        in_sync_replicas: tuple[int, ...],
        start_offset: int,
        high_watermark: int,
        max_lag_ms: int,
        min_in_sync: int,
        now_ms: int,
    ) -> None:
        """``start_offset`` is where the log ended when the epoch began. ``now_ms`` is monotonic, here and below."""
        invariant(me in in_sync_replicas, "a leader is in sync with itself")
        self.me = me
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.in_sync_replicas = in_sync_replicas
        """Committed: what acks=all is checked against."""
        self.high_watermark = high_watermark
        self.proposal: Proposal | None = None
        """Asked of the controller, and not answered yet."""
        self.followers: dict[int, Follower] = {}
        self._start_offset = start_offset
        self._end_offset = high_watermark
        """This replica's own share."""
        self._max_lag_ms = max_lag_ms
        self.min_in_sync = min_in_sync
        self._not_before_ms = now_ms
        self.assign(replicas, now_ms)

    def assign(self, replicas: Collection[int], now_ms: int) -> None:
        """The partition has these replicas. Of a new one nothing is known until it has fetched."""
        long_ago_ms = now_ms - self._max_lag_ms - 1
        self.followers = {
            node: self.followers.get(node) or Follower(-1, now_ms if node in self.in_sync_replicas else long_ago_ms)
            for node in replicas
            if node != self.me
        }

    # The high watermark

    def advance(self, offset: int, now_ms: int) -> bool:
        """This replica holds the log up to ``offset``; whether the high watermark moved by it."""
        self._end_offset = offset
        return self._move(now_ms)

    @property
    def has_enough_in_sync(self) -> bool:
        """min.insync.replicas, or all replicas where there are fewer."""
        count = len(self.in_sync_replicas)
        return count >= self.min_in_sync or count == len(self.followers) + 1

    def _move(self, now_ms: int) -> bool:
        lowest = self._end_offset
        if self.followers:
            if not self.has_enough_in_sync:
                return False
            counted = self.in_sync_replicas if self.proposal is None else self._maximal()
            for node, follower in self.followers.items():
                if follower.end_offset < lowest and (
                    node in counted or (follower.is_eligible and self._is_caught_up(follower, now_ms))
                ):
                    lowest = follower.end_offset
        if lowest <= self.high_watermark:
            return False
        self.high_watermark = lowest
        return True

    def _maximal(self) -> set[int]:
        added = self.proposal.in_sync_replicas if self.proposal is not None else ()
        return {*self.in_sync_replicas, *added}

    def _is_caught_up(self, follower: Follower, now_ms: int) -> bool:
        return follower.end_offset >= self._end_offset or now_ms - follower.caught_up_ms <= self._max_lag_ms

    # Followers

    def on_fetch(
        self, node: int, *, broker_epoch: int, offset: int, leader_end_offset: int, eligible: bool, now_ms: int
    ) -> bool:
        """A follower holds the log up to ``offset``; whether the high watermark moved by it."""
        follower = self.followers[node]
        follower.broker_epoch = broker_epoch
        follower.is_eligible = eligible
        follower.fetch(offset, leader_end_offset, now_ms)
        if node not in self.in_sync_replicas and self._may_join(follower, now_ms):
            self._propose((*self.in_sync_replicas, node))
        return self._move(now_ms)

    def _may_join(self, follower: Follower, now_ms: int) -> bool:
        """It holds all that is committed, and the beginning of this epoch: what it had before is not in question."""
        return (
            follower.is_eligible
            and self.proposal is None
            and now_ms >= self._not_before_ms
            and follower.end_offset >= max(self.high_watermark, self._start_offset)
        )

    def shrink(self, now_ms: int) -> bool:
        """Proposes to go on without the followers that lag; whether it did."""
        if self.proposal is not None or now_ms < self._not_before_ms or len(self.in_sync_replicas) == 1:
            return False
        kept = tuple(
            node
            for node in self.in_sync_replicas
            if node == self.me or (node in self.followers and self._is_caught_up(self.followers[node], now_ms))
        )
        if len(kept) == len(self.in_sync_replicas):
            return False
        self._propose(kept)
        return True

    def _propose(self, in_sync_replicas: tuple[int, ...]) -> None:
        epochs = tuple(
            self.followers[node].broker_epoch if node in self.followers else NO_BROKER_EPOCH
            for node in in_sync_replicas
        )
        self.proposal = Proposal(in_sync_replicas, epochs, self.leader_epoch, self.partition_epoch)

    # The controller's word

    def update(self, partition_epoch: int, in_sync_replicas: tuple[int, ...], now_ms: int) -> bool:
        """These replicas are in sync from now on; whether the high watermark moved by that.

        Of one that joined nothing is known yet: it holds the high watermark where it is until it has fetched.
        """
        if partition_epoch <= self.partition_epoch:
            return False
        invariant(self.me in in_sync_replicas, "a leader is in sync with itself")
        for node, follower in self.followers.items():
            if node not in in_sync_replicas:
                follower.is_eligible = False  # until it fetches again: it may have been fenced
            elif node not in self.in_sync_replicas:
                follower.caught_up_ms = now_ms
        self.partition_epoch = partition_epoch
        self.in_sync_replicas = in_sync_replicas
        self.proposal = None
        return self._move(now_ms)

    def on_refused(self, proposal: Proposal, now_ms: int) -> bool:
        """The controller does not accept the proposal; whether the high watermark moved by that."""
        if self.proposal is not proposal:
            return False
        self.proposal = None
        self._not_before_ms = now_ms + REFUSED_BACKOFF_MS
        return self._move(now_ms)
