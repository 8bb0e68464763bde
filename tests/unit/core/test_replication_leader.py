"""The leader's rules: high watermark, in-sync replicas, proposals."""

from __future__ import annotations

import pytest

from barnabas.core.replication.leader import REFUSED_BACKOFF_MS, LeaderState
from barnabas.model.errors import InvariantBroken

MAX_LAG_MS = 1000


def make(
    in_sync: tuple[int, ...] = (1, 2, 3), replicas: tuple[int, ...] = (1, 2, 3), min_in_sync: int = 1, **options: int
) -> LeaderState:
    given = {"start_offset": 10, "high_watermark": 10, "now_ms": 0, **options}
    return LeaderState(
        me=1,
        leader_epoch=5,
        partition_epoch=7,
        replicas=replicas,
        in_sync_replicas=in_sync,
        max_lag_ms=MAX_LAG_MS,
        min_in_sync=min_in_sync,
        **given,
    )


def fetch(
    leader: LeaderState, node: int, offset: int, end: int = 20, *, now_ms: int = 0, eligible: bool = True
) -> bool:
    return leader.on_fetch(
        node, broker_epoch=100 + node, offset=offset, leader_end_offset=end, eligible=eligible, now_ms=now_ms
    )


def test_alone_the_leaders_own_log_is_the_high_watermark() -> None:
    leader = make((1,), (1,))
    assert leader.advance(12, 0)
    assert leader.high_watermark == 12


def test_it_waits_for_the_slowest_in_sync_replica() -> None:
    leader = make()
    assert not leader.advance(20, 0)
    assert not fetch(leader, 2, 15)
    assert fetch(leader, 3, 18)
    assert leader.high_watermark == 15


def test_it_never_goes_back() -> None:
    leader = make((1, 2), (1, 2))
    leader.advance(20, 0)
    assert fetch(leader, 2, 15)
    assert not fetch(leader, 2, 12), "a follower that has truncated"
    assert leader.high_watermark == 15


def test_the_leaders_own_share_counts() -> None:
    leader = make((1, 2), (1, 2))
    assert not fetch(leader, 2, 20), "the leader has not flushed what the follower holds already"
    assert leader.advance(15, 0)
    assert leader.high_watermark == 15


def test_a_lagging_replica_out_of_sync_neither_moves_it_nor_holds_it_back() -> None:
    leader = make((1, 2))
    leader.advance(2000, 0)
    fetch(leader, 3, 4, 2000)
    assert fetch(leader, 2, 2000, 2000)
    assert leader.high_watermark == 2000


def test_a_caught_up_replica_out_of_sync_holds_it_back_unless_it_is_fenced() -> None:
    leader = make((1,), (1, 2))
    leader.advance(20, 0)
    assert leader.high_watermark == 20
    fetch(leader, 2, 20, 20)
    assert leader.proposal is not None
    leader.on_refused(leader.proposal, 0)
    assert not leader.advance(25, 10), "it could never join otherwise while records keep coming"
    fetch(leader, 2, 20, 25, now_ms=20, eligible=False)
    assert leader.high_watermark == 25


def test_a_follower_joins_when_it_holds_the_high_watermark_and_the_start_of_the_epoch() -> None:
    leader = make((1,), (1, 2), start_offset=15, high_watermark=10)
    leader.advance(12, 0)
    fetch(leader, 2, 12)
    assert leader.proposal is None, "before the epoch's start its log may still have to be cut"
    leader.advance(20, 0)
    fetch(leader, 2, 16)
    assert leader.proposal is None
    fetch(leader, 2, 20)
    assert leader.proposal is not None
    assert leader.proposal.in_sync_replicas == (1, 2)
    assert leader.proposal.broker_epochs == (-1, 102)
    assert leader.proposal.partition_epoch == 7


def test_one_that_is_asked_for_counts_before_the_controller_has_answered() -> None:
    leader = make((1,), (1, 2))
    leader.advance(20, 0)
    fetch(leader, 2, 20, 20)
    assert not leader.advance(30, MAX_LAG_MS * 5), "the controller may have accepted it: the answer is on its way"
    assert leader.update(8, (1,), MAX_LAG_MS * 5), "it has not"
    assert leader.high_watermark == 30


def test_those_who_lag_are_removed_and_count_until_the_controller_says_so() -> None:
    leader = make()
    leader.advance(20, 0)
    fetch(leader, 2, 20, 20, now_ms=100)
    assert not leader.shrink(MAX_LAG_MS), "within the limit"
    leader.advance(21, 500)
    fetch(leader, 2, 21, 21, now_ms=MAX_LAG_MS)
    assert leader.shrink(MAX_LAG_MS + 1)
    assert leader.proposal is not None
    assert leader.proposal.in_sync_replicas == (1, 2)
    assert not leader.shrink(MAX_LAG_MS + 2), "one change at a time"
    assert leader.high_watermark == 10
    assert leader.update(8, (1, 2), MAX_LAG_MS + 3)
    assert leader.high_watermark == 21


def test_a_follower_at_the_end_of_an_idle_log_never_lags() -> None:
    leader = make()
    leader.advance(20, 0)
    for node in (2, 3):
        fetch(leader, node, 20, 20)
    assert not leader.shrink(100 * MAX_LAG_MS)


def test_a_follower_that_reads_steadily_behind_is_caught_up_as_of_its_previous_fetch() -> None:
    leader = make((1, 2), (1, 2))
    for step in range(1, 10):
        now_ms = step * 300
        leader.advance(10 * step, now_ms)
        fetch(leader, 2, 10 * (step - 1), 10 * step, now_ms=now_ms)
        assert not leader.shrink(now_ms)


def test_a_refused_proposal_is_not_repeated_at_once() -> None:
    leader = make((1,), (1, 2))
    leader.advance(20, 0)
    fetch(leader, 2, 20, 20)
    refused = leader.proposal
    assert refused is not None
    leader.on_refused(refused, 50)
    fetch(leader, 2, 20, 20, now_ms=60)
    assert leader.proposal is None
    fetch(leader, 2, 20, 20, now_ms=50 + REFUSED_BACKOFF_MS)
    assert leader.proposal is not None
    assert not leader.on_refused(refused, 300), "an answer to the first one"
    assert leader.proposal is not None


def test_an_older_word_of_the_controller_changes_nothing() -> None:
    leader = make()
    assert not leader.update(7, (1,), 0)
    assert leader.in_sync_replicas == (1, 2, 3)


def test_one_that_leaves_the_set_does_not_hold_the_high_watermark() -> None:
    leader = make((1, 2), (1, 2))
    leader.advance(20, 0)
    fetch(leader, 2, 15)
    assert leader.update(8, (1,), 1), "it was fenced, though it fetched a moment ago"
    assert leader.high_watermark == 20


def test_a_leader_is_in_sync_with_itself() -> None:
    with pytest.raises(InvariantBroken):
        make((2, 3))


def test_it_stands_still_below_min_insync_replicas() -> None:
    leader = make((1,), (1, 2, 3), min_in_sync=2)
    assert not leader.advance(20, 0)
    assert not leader.has_enough_in_sync
    fetch(leader, 2, 20, 20)
    assert leader.update(8, (1, 2), 0)
    assert leader.high_watermark == 20


def test_no_more_replicas_are_asked_for_than_there_are() -> None:
    leader = make((1,), (1,), min_in_sync=2)
    assert leader.has_enough_in_sync
    assert leader.advance(20, 0)
