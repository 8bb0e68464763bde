"""What a leader knows of its followers, and the high watermark that follows from it.

The high watermark is the lowest log end offset among the in-sync replicas; the leader's own share of it is the offset
up to which its log may be seen, which a due flush holds back. It never goes back while the leader leads.
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

    def advance(self, replica: int, offset: int) -> bool:
        """A replica holds the log up to ``offset``; whether the high watermark moved by it.

        A replica that is not in sync does not hold the high watermark back, and does not move it.
        """
        ends = self._ends
        if replica not in ends:
            return False
        ends[replica] = offset
        lowest = offset if len(ends) == 1 else min(ends.values())
        if lowest <= self.high_watermark:
            return False
        self.high_watermark = lowest
        return True
