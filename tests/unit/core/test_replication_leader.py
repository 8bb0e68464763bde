"""The high watermark as the leader keeps it."""

from __future__ import annotations

import pytest

from barnabas.core.replication.leader import LeaderState
from barnabas.model.errors import InvariantBroken


def test_alone_the_leaders_own_log_is_the_high_watermark() -> None:
    leader = LeaderState(1, 5, (1,), 10)
    assert leader.advance(1, 12)
    assert leader.high_watermark == 12


def test_it_waits_for_the_slowest_in_sync_replica() -> None:
    leader = LeaderState(1, 5, (1, 2, 3), 10)
    assert not leader.advance(1, 20)
    assert not leader.advance(2, 15)
    assert leader.advance(3, 18)
    assert leader.high_watermark == 15


def test_it_never_goes_back() -> None:
    leader = LeaderState(1, 5, (1, 2), 10)
    leader.advance(1, 20)
    assert leader.advance(2, 15)
    assert not leader.advance(2, 12), "a follower that has truncated"
    assert leader.high_watermark == 15


def test_a_replica_out_of_sync_neither_moves_it_nor_holds_it_back() -> None:
    leader = LeaderState(1, 5, (1, 2), 10)
    assert not leader.advance(3, 11)
    leader.advance(1, 20)
    assert leader.advance(2, 20)
    assert leader.high_watermark == 20


def test_a_leader_is_in_sync_with_itself() -> None:
    with pytest.raises(InvariantBroken):
        LeaderState(1, 5, (2, 3), 0)
