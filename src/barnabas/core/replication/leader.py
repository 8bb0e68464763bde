"""A leader's view of its followers, and the high watermark.

The high watermark is the lowest log end offset of the in-sync replicas; the leader itself counts with the offset up to
which no flush is due. It never goes back while the leader leads.
"""

from __future__ import annotations

from barnabas.model.errors import invariant


class LeaderState:
    __slots__ = ("_ends", "high_watermark", "leader_epoch", "me")

    def __init__(self, me: int, leader_epoch: int, in_sync_replicas: tuple[int, ...], high_watermark: int) -> None:
        self.me = me
        self.leader_epoch = leader_epoch
        self.high_watermark = high_watermark
        self._ends: dict[int, int] = dict.fromkeys(in_sync_replicas, high_watermark)
        """In-sync replica -> the offset up to which it is known to hold the log."""
        invariant(me in self._ends, "a leader is in sync with itself")

    def update(self, in_sync_replicas: tuple[int, ...]) -> bool:
        """The set of in-sync replicas has changed; whether the high watermark moved by that.

        Of one that joined nothing is known yet: it holds the high watermark where it is until it has fetched.
        """
        invariant(self.me in in_sync_replicas, "a leader is in sync with itself")
        self._ends = {replica: self._ends.get(replica, self.high_watermark) for replica in in_sync_replicas}
        return self._move(min(self._ends.values()))

    def advance(self, replica: int, offset: int) -> bool:
        """A replica holds the log up to ``offset``; whether the high watermark moved by it.

        A replica that is not in sync does not hold the high watermark back, and does not move it.
        """
        ends = self._ends
        if replica not in ends:
            return False
        ends[replica] = offset
        return self._move(offset if len(ends) == 1 else min(ends.values()))

    def _move(self, lowest: int) -> bool:
        if lowest <= self.high_watermark:
            return False
        self.high_watermark = lowest
        return True
