"""A follower's rules: where its log diverges from the leader's, and how far it is cut (KIP-101, KIP-279, KIP-595)."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.model.ids import NO_LEADER_EPOCH

EndOfEpoch = Callable[[int], tuple[int, int]]
"""(the largest epoch not beyond the asked one, where it ended) of this replica's log; (-1, -1) where unknown."""


def truncation_offset(
    *, leader_epoch: int, leader_end_offset: int, end_of_epoch: EndOfEpoch, log_end_offset: int
) -> int:
    """Up to where the log may agree with the leader's, which says that ``leader_epoch`` ended at an offset.

    Where this replica knows that epoch, both agree up to the lower of the two ends. Where it does not, its own largest
    epoch before it ends first: the next fetch asks about that one.
    """
    if leader_epoch == NO_LEADER_EPOCH:
        return min(leader_end_offset, log_end_offset)
    own_epoch, own_end_offset = end_of_epoch(leader_epoch)
    if own_epoch == NO_LEADER_EPOCH:
        return min(leader_end_offset, log_end_offset)
    if own_epoch == leader_epoch:
        return min(own_end_offset, leader_end_offset, log_end_offset)
    return min(own_end_offset, log_end_offset)
