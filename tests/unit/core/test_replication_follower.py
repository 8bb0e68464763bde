"""How far a follower cuts its log."""

from __future__ import annotations

import pytest

from barnabas.core.replication.follower import truncation_offset

EPOCHS = [(1, 0), (3, 10), (5, 20)]
"""(epoch, start offset) of this replica's log, which ends at 30."""


def end_of_epoch(leader_epoch: int) -> tuple[int, int]:
    known = [(epoch, start) for epoch, start in EPOCHS if epoch <= leader_epoch]
    if not known or leader_epoch > EPOCHS[-1][0]:
        return -1, -1
    later = [start for epoch, start in EPOCHS if epoch > leader_epoch]
    return known[-1][0], later[0] if later else 30


@pytest.mark.parametrize(
    ("leader_epoch", "leader_end_offset", "expected", "why"),
    [
        (5, 25, 25, "the same epoch ended earlier at the leader"),
        (5, 40, 30, "nothing to cut"),
        (3, 15, 15, "the leader has an older epoch only, and less of it"),
        (3, 25, 20, "ours ended earlier in that epoch"),
        (4, 18, 20, "we do not know epoch 4: our epoch 3 ends at 20, and the next fetch asks about it"),
        (-1, 12, 12, "the leader knows no epochs"),
        (9, 12, 12, "an epoch beyond ours"),
    ],
)
def test_the_log_is_cut_where_both_may_agree(
    leader_epoch: int, leader_end_offset: int, expected: int, why: str
) -> None:
    offset = truncation_offset(
        leader_epoch=leader_epoch, leader_end_offset=leader_end_offset, end_of_epoch=end_of_epoch, log_end_offset=30
    )
    assert offset == expected, why
